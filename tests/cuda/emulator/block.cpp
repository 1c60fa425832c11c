// Runs launches: block after block, each with its fibers.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <random>

#include "threads.hpp"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace emulator {

Schedule schedule;
Block block_now;

namespace {

// A block's threads are not those of the block before, or ThreadSanitizer would take what thread i of both does
// for one thread's work, and see no race in it.
std::deque<Thread> pools[2];

std::uint64_t count(const dim3& size) { return std::uint64_t{size.x} * size.y * size.z; }

void run_thread() {
    entered();
    block_now.launch->thread();
    block_now.running->state = State::done;
    leave(true);
    std::abort();
}

void begin_threads(const dim3& size, std::deque<Thread>& pool) {
    const auto n = static_cast<unsigned>(count(size));
    while (pool.size() < n) {
        pool.emplace_back();
    }
    block_now.threads.clear();
    for (unsigned i = 0; i < n; ++i) {
        Thread& thread = pool[i];
        thread.number = i;
        thread.index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
        thread.state = State::ready;
        thread.place = {};
        thread.copies.assign(1, {});
        thread.fiber.begin(run_thread);
        block_now.threads.push_back(&thread);
    }
}

void run_block(std::mt19937_64* random) {
    std::vector<Thread*> turns = block_now.threads;
    for (;;) {
        if (random != nullptr) {
            std::shuffle(turns.begin(), turns.end(), *random);
        }
        bool moved = false;
        for (Thread* const thread : turns) {
            if (thread->state == State::ready) {
                block_now.running = thread;
                threadIdx = thread->index;
                enter(thread->fiber);
                moved = true;
            }
        }
        const auto are = [&](State state) {
            return std::all_of(turns.begin(), turns.end(), [=](const Thread* t) { return t->state == state; });
        };
        if (are(State::done)) {
            return;
        }
        if (are(State::at_barrier)) {
            finish_barrier();
        } else if (!moved) {
            fail_stuck();
        }
    }
}

}  // namespace

void begin_copy(Copy copy) { block_now.running->copies.back().push_back(copy); }
void commit_copies() { block_now.running->copies.emplace_back(); }
std::vector<Copy> copies_due(int last_groups) {
    auto& groups = block_now.running->copies;
    std::vector<Copy> due;
    while (std::ssize(groups) - 1 > last_groups) {
        due.insert(due.end(), groups.front().begin(), groups.front().end());
        groups.erase(groups.begin());
    }
    return due;
}

void wait(State state, Place place) {
    block_now.running->state = state;
    block_now.running->place = place;
    leave(false);
}

void order(const std::vector<Thread*>& threads) {
#if defined(EMULATOR_TSAN)
    const AsScheduler scheduler;
    void* const meeting = std::malloc(1);  // an address that stands for no other meeting
    for (Thread* const thread : threads) {
        release_as(&thread->fiber, meeting);
    }
    for (Thread* const thread : threads) {
        acquire_as(&thread->fiber, meeting);
    }
    free_late(meeting);
#else
    static_cast<void>(threads);
#endif
}

void run(const Launch& launch) {
    block_now.launch = &launch;
    blockDim = launch.block;
    gridDim = launch.grid;
    std::mt19937_64 random(schedule.seed);
    std::vector<std::uint64_t> blocks(count(launch.grid));
    std::iota(blocks.begin(), blocks.end(), std::uint64_t{0});
    if (schedule.seed != 0) {
        std::shuffle(blocks.begin(), blocks.end(), random);
    }
    char meeting = 0;
    const std::uint64_t row = launch.grid.x;
    for (std::size_t turn = 0; turn < blocks.size(); ++turn) {
        const std::uint64_t b = blocks[turn];
        blockIdx = {static_cast<unsigned>(b % row), static_cast<unsigned>(b / row % launch.grid.y),
                    static_cast<unsigned>(b / (row * launch.grid.y))};
        begin_threads(launch.block, pools[turn % 2]);
        begin_shared(launch.shared_bytes);
        release_as(nullptr, &meeting);
        for (Thread* const thread : block_now.threads) {
            acquire_as(&thread->fiber, &meeting);
        }
        run_block(schedule.seed != 0 ? &random : nullptr);
        end_shared();
    }
    // The scheduler takes nothing from a block before all have ended: blocks have no order among them.
    for (std::deque<Thread>& pool : pools) {
        for (Thread& thread : pool) {
            if (thread.fiber.stack != nullptr) {
                release_as(&thread.fiber, &meeting);
            }
        }
    }
    acquire_as(nullptr, &meeting);
    forget_late();
}

}  // namespace emulator
