// A table with an entry for each term of the vocabulary.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "pyfast/error.hpp"

namespace pyfast {

// All zeros at first. The system clears large memory page by page when it is touched, so a call takes time only
// for the terms that it meets.
template <class T>
class Zeroed {
  public:
    // Makes room for an entry for each term: a power of two. The contents of a smaller table are lost. Throws
    // Error if there cannot be so many terms.
    void make_room(std::int64_t terms) {
        constexpr std::int64_t most = std::int64_t{1} << 31;  // ids have 32 bits
        if (terms < 0 || terms > most) {
            throw Error("X: expected 0 to 2147483648 terms, got " + std::to_string(terms));
        }
        const std::size_t size = std::bit_ceil(static_cast<std::size_t>(std::max<std::int64_t>(terms, 1)));
        if (size > size_) {
            make(size);
        }
    }
    void clear() { make(size_); }

    [[nodiscard]] T* data() { return memory_.get(); }

    // `term & keep()` is inside the table for any term. Terms were checked, but another thread may have changed
    // the caller's array since.
    [[nodiscard]] std::uint32_t keep() const { return static_cast<std::uint32_t>(size_ - 1); }

    // Frees the memory if it is larger than 256 MB.
    void trim() {
        if (size_ * sizeof(T) > (std::size_t{256} << 20)) {
            memory_.reset();
            size_ = 0;
        }
    }

  private:
    void make(std::size_t size) {
        memory_.reset();
        size_ = 0;
        memory_.reset(static_cast<T*>(std::calloc(size, sizeof(T))));
        if (!memory_ && size > 0) {
            throw std::bad_alloc();
        }
        size_ = size;
    }

    struct Free {
        void operator()(T* memory) const { std::free(memory); }
    };
    std::unique_ptr<T, Free> memory_;
    std::size_t size_ = 0;
};

}  // namespace pyfast
