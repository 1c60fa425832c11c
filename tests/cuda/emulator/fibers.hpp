// Fibers: stacks that take turns on one CPU thread; and what sanitizers want to know of them.
#pragma once

#include <cstddef>

#ifndef __x86_64__
#error "the switch of fibers is written for x86-64"
#endif

namespace emulator {

struct Fiber {
    Fiber() = default;
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;
    ~Fiber();
    // Sets it to begin with `entry`, which must not return.
    void begin(void (*entry)());

    char* stack = nullptr;  // mapped at the first beginning, and kept
    void* sp = nullptr;
    void* thread_of_tsan = nullptr;
};

// From the scheduler to a fiber and back. Neither makes an order of memory for ThreadSanitizer.
void enter(Fiber& fiber);
void leave(bool forever);
// The first thing a fiber does.
void entered();

// What was done before all of `release`d fibers' last steps comes before the next of those that `acquire`d, for
// ThreadSanitizer; `at` is any address. `nullptr`: the scheduler.
void release_as(Fiber* fiber, void* at);
void acquire_as(Fiber* fiber, void* at);
// What is done within is the scheduler's work, for ThreadSanitizer, whichever fiber runs.
struct AsScheduler {
    AsScheduler();
    ~AsScheduler();
    void* fiber = nullptr;
};
// Frees memory that fibers used: at once, or where ThreadSanitizer watches, when forget_late says so.
void free_late(void* memory);
void forget_late();

}  // namespace emulator
