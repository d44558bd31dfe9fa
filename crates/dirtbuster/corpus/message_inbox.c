/* X9: a producer fills a message and hands it over with a compare-and-swap. Message structures are used again and again:
   demote. */
#include <stdatomic.h>
#include <string.h>

#define SLOTS 16
#define MESSAGES 60000

struct message { unsigned long words[16]; };
struct slot { atomic_int state; struct message message; };

static struct slot inbox[SLOTS];
static struct message messages[4];

__attribute__((noinline)) static void fill_msg(struct message *to, unsigned long seed) {
    for (long i = 0; i < 16; i++) to->words[i] = seed + i;
}

__attribute__((noinline)) static void write_to_inbox(unsigned long at, const struct message *from) {
    int empty = 0;
    while (!atomic_compare_exchange_strong(&inbox[at % SLOTS].state, &empty, 1)) empty = 0;
    inbox[at % SLOTS].message.words[0] = from->words[0];
    inbox[at % SLOTS].message.words[8] = from->words[8];
}

__attribute__((noinline)) static unsigned long take(unsigned long at) {
    unsigned long first = inbox[at % SLOTS].message.words[0];
    atomic_exchange(&inbox[at % SLOTS].state, 0);
    return first;
}

int main(void) {
    unsigned long sum = 0;
    for (unsigned long i = 0; i < MESSAGES; i++) {
        fill_msg(&messages[i % 4], i);
        write_to_inbox(i, &messages[i % 4]);
        sum += take(i);
    }
    return sum == 1 ? 1 : 0;
}
