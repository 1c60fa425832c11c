// The threads of the running block, and what each waits for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core.hpp"
#include "fibers.hpp"

namespace emulator {

enum class State : std::uint8_t { ready, at_barrier, in_exchange, done };

struct Thread {
    Fiber fiber;
    State state = State::done;
    unsigned number = 0;  // within the block
    uint3 index{};
    Place place{};
    // at a barrier
    Barrier barrier{};
    int predicate = 0;
    int outcome = 0;
    // in an exchange
    Exchange exchange{};
    unsigned mask = 0;
    std::uint64_t word = 0;
    std::uint64_t words[32] = {};           // of all lanes
    std::vector<std::vector<Copy>> copies;  // by group; the last is open
};

struct Block {
    const Launch* launch = nullptr;
    std::vector<Thread*> threads;
    Thread* running = nullptr;

    // The lane of the warp of `thread`; nullptr beyond the block's end.
    [[nodiscard]] Thread* lane_of(const Thread& thread, unsigned lane) const {
        const unsigned number = thread.number / 32 * 32 + lane;
        return number < threads.size() ? threads[number] : nullptr;
    }
};
extern Block block_now;

// Lets the running thread wait until it is ready again.
void wait(State state, Place place);
// All that any of them did before comes before whatever any of them does next.
void order(const std::vector<Thread*>& threads);
[[noreturn]] void fail(const Thread& thread, const char* what);
// What of a block waits for ever.
[[noreturn]] void fail_stuck();
void finish_barrier();

// Of memory.cpp: for one block, and for all of a launch.
void begin_shared(std::size_t dynamic_bytes);
void end_shared();

}  // namespace emulator
