/*
 * Pools: structures of a program's own that survive a crash, changed by failure-atomic sections.
 *
 * A section's writes, allocations and frees are there after a crash as a whole or not at all, and durable when
 * terrace_pool_section() has returned 0. In persistent memory the pool's file is mapped; on a disk a section is a record
 * of a journal, synced once for all threads that wait. The same functions serve both.
 *
 * What a pool holds are offsets, never pointers: it may lie at another address each time. 0 is nowhere.
 *
 * Functions return 0, or one of terrace_pool_status; terrace_pool_error() says the rest. Databases and pools may be used
 * from any thread; a section from the thread that it was given to, until its body returns.
 */
#ifndef TERRACE_POOLS_H
#define TERRACE_POOLS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why a call did not do what it was asked. All are negative. */
enum terrace_pool_status {
    TERRACE_POOL_OK = 0,
    TERRACE_POOL_ARGUMENT = -1,  /* NULL, a text that is not UTF-8, a number that names nothing */
    TERRACE_POOL_OPEN = -2,      /* it cannot be opened: locked, damaged, or made otherwise */
    TERRACE_POOL_NO_ROOM = -3,   /* the heap has no room for so much; the section may go on */
    TERRACE_POOL_NOTHING = -4,   /* nothing is allocated there; the section may go on */
    TERRACE_POOL_OUTSIDE = -5,   /* not in the heap; the section may go on */
    TERRACE_POOL_TOO_LARGE = -6, /* the section wrote more than the log holds: it is taken back */
    TERRACE_POOL_DISK = -7,      /* a write or sync failed: open the pool again to see what is there */
    TERRACE_POOL_SECTION = -8    /* anything else: a section inside failed, the pool was closed or is read-only */
};

/* Where a directory's contents are durable. */
enum terrace_pool_domain {
    TERRACE_POOL_ON_DISK = 0, /* after a write and a sync */
    TERRACE_POOL_ADR = 1,     /* in memory, after write-backs: clwb and a fence */
    TERRACE_POOL_EADR = 2     /* in memory, once it is stored */
};

/* What makes sections atomic. */
enum terrace_pool_engine {
    TERRACE_POOL_ANY = 0, /* as the pool was made; a new one by its medium */
    TERRACE_POOL_UNDO = 1,
    TERRACE_POOL_REDO = 2,
    TERRACE_POOL_SHADOW = 3
};

/* How a pool is opened; 0 in every field asks for nothing in particular. */
struct terrace_pool_options {
    uint64_t bytes;     /* its size, which is fixed when it is made; 64 MiB */
    uint64_t log_bytes; /* of its log, which bounds one section */
    uint64_t layout;    /* the caller's number for the structures in it: another one is refused; 0 takes any */
    int engine;         /* of terrace_pool_engine */
    int later;          /* not 0: a section returns before it is durable, and terrace_pool_sync() makes it so */
    int at_once;        /* not 0, on a disk: sections run at once, under the caller's own locks */
};

typedef struct terrace_database terrace_database;
typedef struct terrace_pool terrace_pool;
typedef struct terrace_section terrace_section;

/* Opens a directory, made if absent. One process has it at a time, by one handle. */
int terrace_database_open(const char *directory, int domain, terrace_database **database);

/* Closes it with all pools that are open in it: sections of theirs are refused from then on. */
int terrace_database_close(terrace_database *database);

/* Opens a pool, or makes it; `options` may be NULL. Opened twice, it is the same one. */
int terrace_pool_open(terrace_database *database, const char *name, const struct terrace_pool_options *options,
                      terrace_pool **pool);

/* Lets go of the handle. */
void terrace_pool_release(terrace_pool *pool);

/* Runs `body` as a section: committed if it returns 0, else taken back, and what it returned is returned; let it be
 * positive, to be told from a status. A section within one of the same thread is part of that one. `body` returns; it is
 * not left by longjmp() or an exception. */
int terrace_pool_section(terrace_pool *pool, int (*body)(terrace_section *section, void *argument), void *argument);

/* Makes all sections that have returned durable. */
int terrace_pool_sync(terrace_pool *pool);

/* Copies out of the pool, and into it. */
int terrace_section_read(terrace_section *section, uint64_t at, void *to, size_t bytes);
int terrace_section_write(terrace_section *section, uint64_t at, const void *from, size_t bytes);

/* Room for `bytes`, at a multiple of 16; its contents are whatever was there. */
int terrace_section_allocate(terrace_section *section, uint64_t bytes, uint64_t *at);

/* Gives it back. */
int terrace_section_free(terrace_section *section, uint64_t at);

/* Where root `slot` points, of 32; 0 if it was never set. */
int terrace_section_root(terrace_section *section, unsigned slot, uint64_t *at);
int terrace_section_set_root(terrace_section *section, unsigned slot, uint64_t at);

/* What went wrong in this thread's last call that was not 0, in a line. Valid until its next call. Never NULL. */
const char *terrace_pool_error(void);

#ifdef __cplusplus
}
#endif

#endif
