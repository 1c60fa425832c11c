// A column of integers with 32 or 64 bits. A corpus uses 32 bits if they are enough.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pyfast {

// A view, like std::span.
class Integers {
  public:
    Integers() = default;
    template <class Range>
        requires std::convertible_to<const Range&, std::span<const std::int64_t>>
    Integers(const Range& numbers) : wide_(numbers), size_(wide_.size()) {}
    template <class Range>
        requires std::convertible_to<const Range&, std::span<const std::int32_t>>
    Integers(const Range& numbers) : narrow_(numbers), size_(narrow_.size()) {}

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] std::int64_t operator[](std::size_t i) const { return wide_.empty() ? narrow_[i] : wide_[i]; }

  private:
    std::span<const std::int64_t> wide_;
    std::span<const std::int32_t> narrow_;
    std::size_t size_ = 0;
};

}  // namespace pyfast
