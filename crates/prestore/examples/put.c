/* The put of a key-value store that cleans each value before it publishes it, in C. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "terrace_prestore.h"

enum { KEYS = 1000, BYTES = 256 };

static _Atomic(void *) table[KEYS];

static void put(size_t key, int byte) {
    char *value = aligned_alloc(64, BYTES);
    if (!value) {
        abort();
    }
    memset(value, byte, BYTES);
    TERRACE_PRESTORE(value, BYTES, TERRACE_CLEAN);
    free(table[key]);
    table[key] = value;
}

/* The same past the caches. */
static void put_past(size_t key, const char *source) {
    char *value = aligned_alloc(64, BYTES);
    if (!value) {
        abort();
    }
    terrace_prestore_copy_at(terrace_prestore_site_at("put past the caches", __FILE__, 1), value, source, BYTES);
    terrace_prestore_fence();
    free(table[key]);
    table[key] = value;
}

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "put.c: expected %s\n", what);
        exit(1);
    }
}

int main(void) {
    char source[BYTES];
    terrace_prestore_counts counts[4];

    for (size_t key = 0; key < KEYS; key++) {
        put(key, 7);
    }
    terrace_prestore_enable(0);
    put(0, 8); /* not counted */
    terrace_prestore_enable(1);
    memset(source, 9, sizeof source);
    put_past(1, source);
    terrace_prestore(table[2], BYTES, TERRACE_DEMOTE); /* at no site */

    expect(memcmp(table[1], source, BYTES) == 0, "the value that was copied");
    expect(*(char *)table[0] == 8 && *(char *)table[2] == 7, "the values that were written");
    expect(terrace_prestore_sites(counts, 4) == 2, "two sites");
    expect(strcmp(counts[0].name, "put") == 0, "the name of the function");
    expect(counts[0].calls == KEYS && counts[0].lines == KEYS * 4, "a call for each put");
    expect(counts[1].calls == 1 && counts[1].bytes == BYTES, "one put past the caches");
    expect(terrace_prestore_sites(counts, 0) == 2, "a count without room");
    for (size_t site = 0; site < 2; site++) {
        printf("%s (%s:%u): %llu calls, %llu lines, %llu bytes\n", counts[site].name, counts[site].file,
               counts[site].line, (unsigned long long)counts[site].calls,
               (unsigned long long)counts[site].lines, (unsigned long long)counts[site].bytes);
    }
    for (size_t key = 0; key < KEYS; key++) {
        free(table[key]);
    }
    return 0;
}
