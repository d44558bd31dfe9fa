/*
 * Pre-stores: what was written is moved down the memory hierarchy before it must be, in the background.
 *
 * They are hints. None of these functions but terrace_prestore_fence waits for memory or orders anything;
 * none fails or makes anything durable, and what they move stays where it is addressed. Where the processor cannot clean without
 * evicting, cleaning does nothing; where it cannot demote, demoting does nothing.
 *
 * All functions may be called from any thread.
 */
#ifndef TERRACE_PRESTORE_H
#define TERRACE_PRESTORE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is done to lines that were written. Any other value does nothing. */
enum terrace_prestore_op {
    TERRACE_CLEAN = 0, /* their write-back starts; they stay cached: for what is read again */
    TERRACE_DEMOTE = 1 /* they move to where other cores see them: before a fence or an atomic */
};

/* Does `op` to every line that holds a byte of `size` bytes at `location`, which must be mapped. */
void terrace_prestore(const void *location, size_t size, int op);

/* Copies `size` bytes, whole lines past the caches; the two do not overlap. What is copied is in order
 * for other threads after terrace_prestore_fence(): call it before publishing. */
void terrace_prestore_copy(void *to, const void *from, size_t size);

/* Fills `size` bytes with `byte`, as terrace_prestore_copy() copies. */
void terrace_prestore_fill(void *to, int byte, size_t size);

/* Orders what was copied and filled past the caches before every store that follows. */
void terrace_prestore_fence(void);

/* Switches all of them on (the default) or off (0), for two runs of one program. Off, terrace_prestore()
 * does nothing and the other two store plainly. */
void terrace_prestore_enable(int on);

/* Pre-stores of fewer bytes are left out from now on, as if they were switched off. 0 at first. */
void terrace_prestore_least(size_t bytes);

/* A place in a program, with counters of its own. */
typedef struct terrace_prestore_site terrace_prestore_site;

/* The site of this name, file and line: the same one for the same three. It lives as long as the process.
 * The texts are copied. Never NULL. */
const terrace_prestore_site *terrace_prestore_site_at(const char *name, const char *file, uint32_t line);

/* The same as without `_at`, counted at a site; at none if `site` is NULL. */
void terrace_prestore_at(const terrace_prestore_site *site, const void *location, size_t size, int op);
void terrace_prestore_copy_at(const terrace_prestore_site *site, void *to, const void *from, size_t size);
void terrace_prestore_fill_at(const terrace_prestore_site *site, void *to, int byte, size_t size);

/* What a site has issued. Texts that are too long are cut off. */
typedef struct {
    char name[64];
    char file[128];
    uint32_t line;
    uint64_t calls; /* those that were switched off do not count */
    uint64_t lines; /* of 64 bytes, touched by these calls */
    uint64_t bytes;
} terrace_prestore_counts;

/* Writes the counts of at most `most` sites that have issued something to `counts`; returns how many such
 * sites there are. Sites after the 63rd are counted together, as "(others)". */
size_t terrace_prestore_sites(terrace_prestore_counts *counts, size_t most);

/* Whether this processor keeps what it cleans. */
enum terrace_prestore_verdict {
    TERRACE_KEEPS = 0,         /* where it was */
    TERRACE_KEEPS_FURTHER = 1, /* in a further cache */
    TERRACE_EVICTS = 2,        /* not at all */
    TERRACE_ABSENT = 3,        /* there is no instruction that cleans */
    TERRACE_UNCLEAR = 4        /* it cannot be told */
};

/* The time to read a line again, ns, by what was done since it was written. */
typedef struct {
    int verdict; /* an enum terrace_prestore_verdict */
    double cached_ns;
    double cleaned_ns;
    double demoted_ns;
    double evicted_ns;
} terrace_prestore_retention;

/* Tries it out, which takes some milliseconds. */
void terrace_prestore_try(terrace_prestore_retention *found);

#ifdef __cplusplus
}
#endif

/* terrace_prestore() at a site of its own: the function it stands in, its file and line. */
#define TERRACE_PRESTORE(location, size, op)                                                          \
    do {                                                                                              \
        static const terrace_prestore_site *terrace_here_;                                            \
        const terrace_prestore_site *terrace_site_ = __atomic_load_n(&terrace_here_, __ATOMIC_ACQUIRE); \
        if (!terrace_site_) {                                                                         \
            terrace_site_ = terrace_prestore_site_at(__func__, __FILE__, __LINE__);                   \
            __atomic_store_n(&terrace_here_, terrace_site_, __ATOMIC_RELEASE);                        \
        }                                                                                             \
        terrace_prestore_at(terrace_site_, (location), (size), (op));                                 \
    } while (0)

#endif
