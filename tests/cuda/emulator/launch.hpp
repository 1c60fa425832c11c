// GPU_LAUNCH and the two kinds of shared memory, as csrc/cuda/gpu.cuh has them for nvcc.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "core.hpp"
#include "runtime.hpp"

namespace emulator {

template <class... Parameters, class... Arguments>
void launch(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            void (*kernel)(Parameters...), const Arguments&... arguments) {
    std::tuple<std::remove_cv_t<Parameters>...> values{static_cast<Parameters>(arguments)...};
    Launch made{name, reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, {}, {}};
    std::apply(
        [&](const auto&... v) {
            made.arguments = {{&v, sizeof v, std::is_pointer_v<std::remove_cvref_t<decltype(v)>>}...};
        },
        values);
    made.thread = [&] { std::apply(kernel, values); };
    made.stream = stream;
    submit(made);
}

}  // namespace emulator

#define GPU_CARVED(array, bytes) emulator::carve(array, bytes)
#define GPU_KERNEL(...) __VA_ARGS__
#define GPU_MOST_BLOCKS emulator::schedule.most_blocks
#define GPU_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    emulator::launch(#kernel, grid, block, shared_bytes, stream, kernel, __VA_ARGS__)
// A heap block of the exact size for each array of each block, so that sanitizers see its ends.
#define GPU_SHARED(T, name, count)                    \
    static const char name##_key = 0;                 \
    using name##_array = T[count];                    \
    name##_array& name = *static_cast<name##_array*>( \
        emulator::shared_array(&name##_key, sizeof(name##_array), alignof(name##_array)))
#define GPU_DYN_SHARED(T, name) T* const name = static_cast<T*>(emulator::dynamic_shared())
