#include "fibers.hpp"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#if defined(EMULATOR_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(EMULATOR_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace emulator {

namespace {

constexpr std::size_t guard_bytes = 4096;
constexpr std::size_t stack_bytes = 128 * 1024;

void* scheduler_sp = nullptr;
Fiber* current = nullptr;
#if defined(EMULATOR_ASAN)
const void* scheduler_stack = nullptr;
std::size_t scheduler_stack_bytes = 0;
#endif
#if defined(EMULATOR_TSAN)
void* scheduler_of_tsan() {
    static void* const thread = __tsan_get_current_fiber();
    return thread;
}
void* of_tsan(Fiber* fiber) { return fiber == nullptr ? scheduler_of_tsan() : fiber->thread_of_tsan; }
#endif

// Keeps the registers that a callee must, changes stacks, and takes up those found there.
[[gnu::naked, gnu::noinline]] void swap_stacks(void** /*save*/, void* /*load*/) {
    asm volatile(
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}

}  // namespace

Fiber::~Fiber() {
    if (stack != nullptr) {
        munmap(stack, guard_bytes + stack_bytes);
    }
}

void Fiber::begin(void (*entry)()) {
    if (stack == nullptr) {
        void* const mapped = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED || mprotect(mapped, guard_bytes, PROT_NONE) != 0) {
            std::perror("emulator: no memory for stacks");
            std::abort();
        }
        stack = static_cast<char*>(mapped);
    }
#if defined(EMULATOR_TSAN)
    scheduler_of_tsan();
    if (thread_of_tsan == nullptr) {
        thread_of_tsan = __tsan_create_fiber(0);
    }
#endif
    // As after a call: the stack is 8 short of a multiple of 16 when `entry` begins. Below it, six registers.
    auto** top = reinterpret_cast<void**>(stack + guard_bytes + stack_bytes);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) {
        *--top = nullptr;
    }
    sp = top;
}

void enter(Fiber& fiber) {
    current = &fiber;
#if defined(EMULATOR_TSAN)
    __tsan_switch_to_fiber(fiber.thread_of_tsan, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(EMULATOR_ASAN)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, fiber.stack + guard_bytes, stack_bytes);
#endif
    swap_stacks(&scheduler_sp, fiber.sp);
#if defined(EMULATOR_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void leave([[maybe_unused]] bool forever) {
    Fiber& fiber = *current;
#if defined(EMULATOR_TSAN)
    __tsan_switch_to_fiber(scheduler_of_tsan(), __tsan_switch_to_fiber_no_sync);
#endif
#if defined(EMULATOR_ASAN)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(forever ? nullptr : &fake_stack, scheduler_stack, scheduler_stack_bytes);
#endif
    swap_stacks(&fiber.sp, scheduler_sp);
#if defined(EMULATOR_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

void entered() {
#if defined(EMULATOR_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

void release_as([[maybe_unused]] Fiber* fiber, [[maybe_unused]] void* at) {
#if defined(EMULATOR_TSAN)
    void* const now = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(of_tsan(fiber), __tsan_switch_to_fiber_no_sync);
    __tsan_release(at);
    __tsan_switch_to_fiber(now, __tsan_switch_to_fiber_no_sync);
#endif
}

void acquire_as([[maybe_unused]] Fiber* fiber, [[maybe_unused]] void* at) {
#if defined(EMULATOR_TSAN)
    void* const now = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(of_tsan(fiber), __tsan_switch_to_fiber_no_sync);
    __tsan_acquire(at);
    __tsan_switch_to_fiber(now, __tsan_switch_to_fiber_no_sync);
#endif
}

AsScheduler::AsScheduler() {
#if defined(EMULATOR_TSAN)
    fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(scheduler_of_tsan(), __tsan_switch_to_fiber_no_sync);
#endif
}
AsScheduler::~AsScheduler() {
#if defined(EMULATOR_TSAN)
    __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
#endif
}

namespace {
std::vector<void*> late;
}

void free_late(void* memory) {
#if defined(EMULATOR_TSAN)
    late.push_back(memory);
#else
    std::free(memory);
#endif
}

void forget_late() {
    for (void* const memory : late) {
        std::free(memory);
    }
    late.clear();
}

}  // namespace emulator
