/* CLHT with YCSB A: a value is crafted, then a bucket is locked with an atomic instruction. Values are rarely reused:
   skip. */
#include <stdatomic.h>
#include <stdlib.h>

#define KEYS 16384
#define VALUE_WORDS 128

struct bucket { atomic_int lock; int pad; unsigned long key; unsigned long *value; };

static unsigned long *values;
static struct bucket *buckets;

__attribute__((noinline)) static void craft_value(unsigned long *to, unsigned long seed) {
    for (long i = 0; i < VALUE_WORDS; i++) to[i] = seed * (i + 3);
}

__attribute__((noinline)) static void put(unsigned long key, unsigned long *value) {
    struct bucket *at = &buckets[key];
    int open = 0;
    while (!atomic_compare_exchange_weak(&at->lock, &open, 1)) open = 0;
    at->key = key;
    at->value = value;
    atomic_store_explicit(&at->lock, 0, memory_order_release);
}

__attribute__((noinline)) static unsigned long get(unsigned long key) {
    struct bucket *at = &buckets[key];
    return at->value ? at->value[0] : 0;
}

int main(void) {
    values = aligned_alloc(4096, (size_t)KEYS * VALUE_WORDS * 8 * 2);
    buckets = calloc(KEYS, sizeof *buckets);
    unsigned long random = 7, sum = 0;
    for (long i = 0; i < KEYS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned long *value = values + (random >> 40) % (2 * KEYS) * VALUE_WORDS;
        craft_value(value, random);
        put((random >> 33) % KEYS, value);
        sum += get((random >> 20) % KEYS);
    }
    return sum == 1 ? 1 : 0;
}
