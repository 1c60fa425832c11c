// Memory that an op returns.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace pyfast {

// An array that its receiver owns. It is not cleared when it is created. It can be moved but not copied.
template <class T>
struct Buffer {
    std::unique_ptr<T[]> data;
    std::size_t size = 0;

    Buffer() = default;
    explicit Buffer(std::size_t n) : data(std::make_unique_for_overwrite<T[]>(n)), size(n) {}
    [[nodiscard]] std::span<T> span() { return {data.get(), size}; }
    [[nodiscard]] std::span<const T> span() const { return {data.get(), size}; }
};

}  // namespace pyfast
