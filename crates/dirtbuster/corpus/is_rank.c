/* NAS IS, rank: counts keys into places that look random. Not sequential: nothing. */
#include <stdlib.h>

#define KEYS (1 << 20)
#define MAX_KEY (1 << 19)

__attribute__((noinline)) static void rank(const int *keys, int *counts) {
    for (long i = 0; i < KEYS; i++) counts[keys[i]]++;
}

int main(void) {
    int *keys = malloc(KEYS * sizeof *keys), *counts = calloc(MAX_KEY, sizeof *counts);
    unsigned long random = 314159265;
    for (long i = 0; i < KEYS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        keys[i] = (int)(random >> 33) % MAX_KEY;
    }
    for (int turn = 0; turn < 2; turn++) rank(keys, counts);
    return counts[7] == -1 ? 1 : 0;
}
