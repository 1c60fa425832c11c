// Vectors that begin at a cache line, because loading a 64-byte register from another address takes two reads.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace pyfast {

template <class T>
struct CacheLineAllocator {
    using value_type = T;
    static constexpr std::align_val_t alignment{64};

    CacheLineAllocator() = default;
    template <class U>
    explicit CacheLineAllocator(const CacheLineAllocator<U>&) {}

    T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), alignment)); }
    void deallocate(T* memory, std::size_t) { ::operator delete(memory, alignment); }

    bool operator==(const CacheLineAllocator&) const = default;
};

template <class T>
using Aligned = std::vector<T, CacheLineAllocator<T>>;

}  // namespace pyfast
