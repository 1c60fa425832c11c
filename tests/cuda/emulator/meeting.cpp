// Where threads meet: barriers of a block, exchanges of a warp; and the message where they do not.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "threads.hpp"

namespace emulator {

namespace {

bool same(const Place& a, const Place& b) { return a.line == b.line && std::strcmp(a.file, b.file) == 0; }

std::string described(const Place& place) { return std::string(place.file) + ":" + std::to_string(place.line); }

// Whether all lanes that `thread`'s mask names wait in the same exchange as it.
bool complete(const Thread& thread) {
    for (unsigned l = 0; l < 32; ++l) {
        if (thread.mask >> l & 1) {
            const Thread* const other = block_now.lane_of(thread, l);
            if (other == nullptr || other->state != State::in_exchange || other->mask != thread.mask ||
                other->exchange != thread.exchange || !same(other->place, thread.place)) {
                return false;
            }
        }
    }
    return true;
}

void finish_exchange(const Thread& last) {
    std::vector<Thread*> lanes;
    std::uint64_t words[32] = {};
    for (unsigned l = 0; l < 32; ++l) {
        if (last.mask >> l & 1) {
            lanes.push_back(block_now.lane_of(last, l));
            words[l] = lanes.back()->word;
        }
    }
    for (Thread* const thread : lanes) {
        for (unsigned l = 0; l < 32; ++l) {
            thread->words[l] = words[l];
        }
        thread->state = State::ready;
    }
    if (last.exchange == Exchange::fence) {
        order(lanes);
    }
}

}  // namespace

unsigned lane() { return block_now.running->number % 32; }

void exchange(Exchange kind, unsigned mask, std::uint64_t word, Place place) {
    Thread& thread = *block_now.running;
    if (!(mask >> lane() & 1)) {
        fail(place, "the lane is not in its own mask");
    }
    thread.exchange = kind;
    thread.mask = mask;
    thread.word = word;
    thread.place = place;
    thread.state = State::in_exchange;
    if (complete(thread)) {
        finish_exchange(thread);
    } else {
        wait(State::in_exchange, place);
    }
}

std::uint64_t word_of(unsigned lane) { return block_now.running->words[lane]; }

int barrier(Barrier kind, int predicate, Place place) {
    Thread& thread = *block_now.running;
    thread.barrier = kind;
    thread.predicate = predicate;
    wait(State::at_barrier, place);
    return thread.outcome;
}

void finish_barrier() {
    const Thread& first = *block_now.threads.front();
    int count = 0;
    for (const Thread* const thread : block_now.threads) {
        if (thread->barrier != first.barrier || !same(thread->place, first.place)) {
            fail(*thread, ("divergent barrier: thread 0 waits at " + described(first.place)).c_str());
        }
        count += thread->predicate != 0;
    }
    const int all = static_cast<int>(block_now.threads.size());
    for (Thread* const thread : block_now.threads) {
        thread->outcome = thread->barrier == Barrier::count ? count
                          : thread->barrier == Barrier::all ? count == all
                                                            : count != 0;
        thread->state = State::ready;
    }
    order(block_now.threads);
}

void fail(const Thread& thread, const char* what) {
    std::fprintf(stderr, "emulator: %s, block (%u, %u, %u), thread %u, at %s: %s\n", block_now.launch->name,
                 blockIdx.x, blockIdx.y, blockIdx.z, thread.number,
                 thread.place.file == nullptr ? "its start" : described(thread.place).c_str(), what);
    std::_Exit(70);
}

void fail(Place place, const char* what) {
    block_now.running->place = place;
    fail(*block_now.running, what);
}

void fail_stuck() {
    for (const Thread* const thread : block_now.threads) {
        if (thread->state == State::in_exchange) {
            unsigned here = 0;
            for (unsigned l = 0; l < 32; ++l) {
                const Thread* const other = block_now.lane_of(*thread, l);
                const bool waits = other != nullptr && other->state == State::in_exchange;
                here |= static_cast<unsigned>(waits && same(other->place, thread->place)) << l;
            }
            char text[96];
            std::snprintf(text, sizeof text, "divergent warp: lanes of the mask %08x do not come, but %08x",
                          thread->mask, here & thread->mask);
            fail(*thread, text);
        }
    }
    for (const Thread* const thread : block_now.threads) {
        if (thread->state == State::at_barrier) {
            fail(*thread, "divergent barrier: other threads of the block have ended");
        }
    }
    std::abort();  // there is nothing else to wait for
}

}  // namespace emulator
