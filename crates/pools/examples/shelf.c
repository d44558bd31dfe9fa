/* A stack of numbers in a pool. DIRECTORY DOMAIN: pushes and pops, on a disk (0) or in emulated persistent memory (1), and
 * finds what it left when it is run again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "terrace_pools.h"

struct link {
    uint64_t value;
    uint64_t next; /* an offset */
};

#define TOP 0u
#define SOLD_OUT 1

#define MUST(call)                                                                             \
    do {                                                                                       \
        int status_ = (call);                                                                  \
        if (status_ != 0) {                                                                    \
            fprintf(stderr, "%s: %d: %s\n", #call, status_, terrace_pool_error());             \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

/* Inside a section: what fails takes it back. */
#define TRY(call)                   \
    do {                            \
        int status_ = (call);       \
        if (status_ != 0)           \
            return status_;         \
    } while (0)

static int push(terrace_section *section, void *argument) {
    struct link link = {*(uint64_t *)argument, 0};
    uint64_t at;
    TRY(terrace_section_root(section, TOP, &link.next));
    TRY(terrace_section_allocate(section, sizeof link, &at));
    TRY(terrace_section_write(section, at, &link, sizeof link));
    return terrace_section_set_root(section, TOP, at);
}

static int pop(terrace_section *section, void *argument) {
    struct link link;
    uint64_t at;
    TRY(terrace_section_root(section, TOP, &at));
    if (at == 0)
        return SOLD_OUT;
    TRY(terrace_section_read(section, at, &link, sizeof link));
    TRY(terrace_section_set_root(section, TOP, link.next));
    TRY(terrace_section_free(section, at));
    *(uint64_t *)argument = link.value;
    return 0;
}

/* Everything that it does is taken back. */
static int pop_and_fail(terrace_section *section, void *argument) {
    TRY(pop(section, argument));
    return terrace_section_free(section, 8) == TERRACE_POOL_NOTHING ? 42 : 43;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    terrace_database *database;
    terrace_pool *pool;
    struct terrace_pool_options options;
    memset(&options, 0, sizeof options);
    options.bytes = 4u << 20;
    options.layout = 1;
    MUST(terrace_database_open(arguments[1], atoi(arguments[2]), &database));
    MUST(terrace_pool_open(database, "shelf", &options, &pool));
    uint64_t value = 0, popped = 0;
    while (terrace_pool_section(pool, pop, &value) == 0)
        popped++;
    for (value = 1; value <= 3; value++)
        MUST(terrace_pool_section(pool, push, &value));
    if (terrace_pool_section(pool, pop_and_fail, &value) != 42)
        return 1;
    MUST(terrace_pool_sync(pool));
    options.layout = 2;
    terrace_pool *other;
    int refused = terrace_pool_open(database, "shelf", &options, &other);
    printf("found %d; another layout: %d, %s\n", (int)popped, refused, terrace_pool_error());
    terrace_pool_release(pool);
    MUST(terrace_database_close(database));
    return refused == TERRACE_POOL_OPEN ? 0 : 1;
}
