// Device and shared memory, and the runtime's interface to both.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "core.hpp"
#include "runtime.hpp"
#include "threads.hpp"

#if defined(EMULATOR_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace emulator {

Recorder* recorder = nullptr;
const void* callers_stream = nullptr;

void run(const Launch& launch);

namespace {

// Of compute capability 8.0, the least that the kernels are for.
constexpr std::size_t most_shared = 163 * 1024;
constexpr std::size_t shared_by_default = 48 * 1024;
constexpr std::size_t device_alignment = 256;

std::map<char*, std::size_t> allocations;
std::map<char*, std::size_t> gaps;  // between arrays of one allocation
int host_accesses = 0;

struct Shared {
    void* memory;
    std::size_t bytes;
};
std::map<const void*, Shared> shared;
void* dynamic = nullptr;
std::size_t shared_bytes = 0;
std::map<const void*, std::size_t> allowed_dynamic;
cudaError_t last_error = cudaSuccess;

void* fresh(std::size_t bytes, std::size_t alignment) {
    void* memory = nullptr;
    const std::size_t least = alignment < sizeof(void*) ? sizeof(void*) : alignment;
    if (posix_memalign(&memory, least, bytes == 0 ? 1 : bytes) != 0) {
        std::abort();
    }
    std::memset(memory, schedule.poison, bytes);
    return memory;
}

void guard([[maybe_unused]] bool on) {
#if defined(EMULATOR_ASAN)
    for (const auto& [memory, bytes] : allocations) {
        if (on) {
            __asan_poison_memory_region(memory, bytes);
        } else {
            __asan_unpoison_memory_region(memory, bytes);
        }
    }
    for (const auto& [memory, bytes] : gaps) {
        __asan_poison_memory_region(memory, bytes);
    }
#endif
}

cudaError_t refuse(cudaError_t error) {
    last_error = error;
    return error;
}

bool fits(const Launch& launch) {
    const dim3& b = launch.block;
    const dim3& g = launch.grid;
    const bool block = b.x > 0 && b.y > 0 && b.z > 0 && b.z <= 64 && std::size_t{b.x} * b.y * b.z <= 1024;
    const bool grid = g.x > 0 && g.y > 0 && g.z > 0 && g.x <= 0x7FFFFFFF && g.y <= 65535 && g.z <= 65535;
    return block && grid;
}

}  // namespace

void* allocate(std::size_t bytes) {
    void* const memory = fresh(bytes, device_alignment);
    allocations[static_cast<char*>(memory)] = bytes;
    guard(host_accesses == 0);
    return memory;
}

void carve(void* array, std::size_t bytes) {
    if (recorder != nullptr) {
        recorder->carve(array, bytes);
        return;
    }
    auto* const first = static_cast<char*>(array);
    const std::size_t all = (bytes / device_alignment + 1) * device_alignment;
    gaps.erase(gaps.lower_bound(first), gaps.lower_bound(first + all));
    gaps[first + bytes] = all - bytes;
}

void release(void* memory) {
    auto* const first = static_cast<char*>(memory);
    gaps.erase(gaps.lower_bound(first), gaps.lower_bound(first + allocations[first]));
    const HostAccess access;
    allocations.erase(first);
    std::free(memory);
}

bool on_device(const void* memory, std::size_t bytes) {
    auto* const first = static_cast<char*>(const_cast<void*>(memory));
    const auto after = allocations.upper_bound(first);
    if (after == allocations.begin()) {
        return false;
    }
    const auto& [start, size] = *std::prev(after);
    return static_cast<std::size_t>(first - start) + bytes <= size;
}

HostAccess::HostAccess() {
    if (host_accesses++ == 0) {
        guard(false);
    }
}
HostAccess::~HostAccess() {
    if (--host_accesses == 0) {
        guard(true);
    }
}

void begin_shared(std::size_t dynamic_bytes) {
    dynamic = fresh(dynamic_bytes, 16);
    shared_bytes = dynamic_bytes;
}

void end_shared() {
    free_late(dynamic);
    for (const auto& [key, array] : shared) {
        free_late(array.memory);
    }
    shared.clear();
}

void* dynamic_shared() { return dynamic; }

void* shared_array(const void* key, std::size_t bytes, std::size_t alignment) {
    Thread& thread = *block_now.running;
    auto found = shared.find(key);
    if (found == shared.end()) {
        const AsScheduler scheduler;
        found = shared.emplace(key, Shared{fresh(bytes, alignment), bytes}).first;
        shared_bytes += bytes;
        if (shared_bytes > (block_now.launch->shared_bytes > 0 ? most_shared : shared_by_default)) {
            fail(thread, "too much shared memory");
        }
        release_as(nullptr, found->second.memory);
    }
    acquire_as(&thread.fiber, found->second.memory);
    return found->second.memory;
}

void submit(const Launch& launch) {
    if (launch.stream != callers_stream) {
        refuse(cudaErrorInvalidResourceHandle);
        return;
    }
    const auto allowed = allowed_dynamic.find(launch.kernel);
    if (!fits(launch)) {
        refuse(cudaErrorInvalidConfiguration);
        return;
    }
    if (launch.shared_bytes > (allowed == allowed_dynamic.end() ? shared_by_default : allowed->second)) {
        refuse(cudaErrorInvalidValue);
        return;
    }
    for (std::size_t i = 0; i < launch.arguments.size(); ++i) {
        const Argument& argument = launch.arguments[i];
        if (const void* const* at = static_cast<const void* const*>(argument.data);
            argument.pointer && *at != nullptr && !on_device(*at, 0)) {
            std::fprintf(stderr, "emulator: %s: argument %zu does not point to device memory\n", launch.name, i);
            std::_Exit(70);
        }
    }
    if (recorder != nullptr) {
        recorder->launch(launch);
        return;
    }
    const HostAccess access;
    run(launch);
}

}  // namespace emulator

using namespace emulator;

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
const char* cudaGetErrorName(cudaError_t error) {
    return error == cudaSuccess                      ? "cudaSuccess"
           : error == cudaErrorInvalidValue          ? "cudaErrorInvalidValue"
           : error == cudaErrorInvalidResourceHandle ? "cudaErrorInvalidResourceHandle: not on the caller's stream"
                                                     : "cudaErrorInvalidConfiguration";
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    if (stream != callers_stream) {
        return refuse(cudaErrorInvalidResourceHandle);
    }
    if (bytes > 0 && !on_device(to, bytes)) {
        return refuse(cudaErrorInvalidValue);
    }
    const HostAccess access;
    recorder != nullptr ? recorder->fill(to, value, bytes) : static_cast<void>(std::memset(to, value, bytes));
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (stream != callers_stream) {
        return refuse(cudaErrorInvalidResourceHandle);
    }
    if (bytes > 0 && (kind != cudaMemcpyDeviceToDevice || !on_device(to, bytes) || !on_device(from, bytes))) {
        return refuse(cudaErrorInvalidValue);
    }
    const HostAccess access;
    recorder != nullptr ? recorder->copy(to, from, bytes) : static_cast<void>(std::memcpy(to, from, bytes));
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
    if (value < 0 || static_cast<std::size_t>(value) > most_shared) {
        return refuse(cudaErrorInvalidValue);
    }
    allowed_dynamic[kernel] = static_cast<std::size_t>(value);
    return cudaSuccess;
}
