/* Masstree with YCSB A: a value is crafted, then a leaf's version is read behind a fence, the leaf changed, and the
   version checked. Values are rarely reused: skip. */
#include <stdatomic.h>
#include <stdlib.h>

#define KEYS 16384
#define VALUE_WORDS 128
#define WIDTH 16

struct leaf { atomic_ulong version; unsigned long keys[WIDTH]; unsigned long *values[WIDTH]; };

static unsigned long *values;
static struct leaf *leaves;

__attribute__((noinline)) static void craft_value(unsigned long *to, unsigned long seed) {
    for (long i = 0; i < VALUE_WORDS; i++) to[i] = seed * (i + 3);
}

__attribute__((noinline)) static void tree_put(unsigned long key, unsigned long *value) {
    struct leaf *leaf = &leaves[key / WIDTH];
    unsigned long before;
    do {
        before = atomic_load_explicit(&leaf->version, memory_order_acquire);
        atomic_thread_fence(memory_order_seq_cst);
        leaf->keys[key % WIDTH] = key;
        leaf->values[key % WIDTH] = value;
        atomic_thread_fence(memory_order_seq_cst);
    } while (atomic_load(&leaf->version) != before);
}

int main(void) {
    values = aligned_alloc(4096, (size_t)KEYS * VALUE_WORDS * 8 * 2);
    leaves = calloc(KEYS / WIDTH, sizeof *leaves);
    unsigned long random = 7;
    for (long i = 0; i < KEYS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned long *value = values + (random >> 40) % (2 * KEYS) * VALUE_WORDS;
        craft_value(value, random);
        tree_put((random >> 33) % KEYS, value);
    }
    return leaves[0].keys[0] == 1 ? 1 : 0;
}
