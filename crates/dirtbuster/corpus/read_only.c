/* YCSB C: lookups alone. Not write-intensive. */
#include <stdlib.h>

#define WORDS (1 << 18)

__attribute__((noinline)) static unsigned long look_up(const unsigned long *table, unsigned long at) {
    unsigned long sum = 0;
    for (long i = 0; i < 8; i++) sum += table[(at + i) % WORDS];
    return sum;
}

int main(void) {
    unsigned long *table = calloc(WORDS, sizeof *table);
    unsigned long random = 7, sum = 0;
    for (long i = 0; i < 500000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        sum += look_up(table, random >> 33);
    }
    return sum == 1 ? 1 : 0;
}
