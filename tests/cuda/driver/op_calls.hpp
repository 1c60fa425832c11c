// What the calls of ops share. Every one ends with the status word and the workspace; `<op>_workspace` says how
// large.
#pragma once

#include "calls.hpp"
#include "core.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/pools.hpp"

namespace driver {

using Calls = std::map<std::string, Call>;
void add_gatv2_calls(Calls& all);
void add_maxsim_calls(Calls& all);
void add_pool_calls(Calls& all);
void add_stream_calls(Calls& all);

inline pyfast::cuda::Queue queue(Arguments& a) {
    const auto status = a.array<std::int32_t>();
    return {stream, status.data(), a.array<std::byte>()};
}

template <class T>
pyfast::Ragged<T> ragged(Arguments& a) {
    const auto offsets = a.array<const std::int64_t>();
    return {offsets, a.array<const T>()};
}

inline void give(Arguments& a, std::size_t bytes) {
    const auto out = a.array<std::uint64_t>();
    const emulator::HostAccess access;
    out[0] = bytes;
}

}  // namespace driver
