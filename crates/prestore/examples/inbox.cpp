// A message that is demoted before it is sent, in C++; and what this processor does with cleaned lines.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "terrace_prestore.h"

struct alignas(128) Message {
    std::uint64_t words[16];
    std::atomic<bool> sent{false};
};

static const int MESSAGES = 1000;
static Message inbox[MESSAGES];

static void send(Message &message, std::uint64_t number) {
    for (auto &word : message.words) {
        word = number;
    }
    TERRACE_PRESTORE(message.words, sizeof message.words, TERRACE_DEMOTE);
    message.sent.store(true, std::memory_order_release);
}

int main() {
    std::thread writer([] {
        for (int number = 0; number < MESSAGES; number++) {
            send(inbox[number], number);
        }
    });
    for (int number = 0; number < MESSAGES; number++) {
        while (!inbox[number].sent.load(std::memory_order_acquire)) {
        }
        for (auto word : inbox[number].words) {
            if (word != static_cast<std::uint64_t>(number)) {
                std::fprintf(stderr, "inbox.cpp: message %d has %llu\n", number,
                             static_cast<unsigned long long>(word));
                return 1;
            }
        }
    }
    writer.join();

    terrace_prestore_counts counts;
    if (terrace_prestore_sites(&counts, 1) != 1 || counts.calls != MESSAGES) {
        std::fprintf(stderr, "inbox.cpp: expected %d calls\n", MESSAGES);
        return 1;
    }
    terrace_prestore_retention found;
    terrace_prestore_try(&found);
    std::printf("%s: %llu calls; cached %.1f ns, cleaned %.1f, demoted %.1f, evicted %.1f: verdict %d\n",
                counts.name, static_cast<unsigned long long>(counts.calls), found.cached_ns,
                found.cleaned_ns, found.demoted_ns, found.evicted_ns, found.verdict);
    return found.verdict >= TERRACE_KEEPS && found.verdict <= TERRACE_UNCLEAR ? 0 : 1;
}
