// A fuzzer's bytes as the arguments of ops: a small well-formed problem, and then perhaps some numbers of it
// spoilt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pyfast/pools.hpp"

namespace fuzz {

// Reads numbers off the bytes; zeros when they are used up.
class Input {
  public:
    explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

    std::uint64_t bits(std::size_t bytes);
    std::int64_t below(std::int64_t n);  // 0 to n - 1; 0 where n < 1
    bool coin() { return (bits(1) & 1) != 0; }
    bool one_in(std::int64_t n) { return below(n) == n - 1; }

    // Mostly small and sensible, now and then 0, negative, NaN, infinite, denormal or huge.
    float number();
    // From -1 to `most` + 1, now and then as far out as 64 bits go.
    std::int64_t setting(std::int64_t most);

    // Changes, removes or adds a number of the array, or swaps two: indices come to lie out of range or order,
    // offsets decrease, overflow or have no end, weights are negative or NaN.
    void spoil(std::vector<std::int64_t>& numbers);
    void spoil(std::vector<std::int32_t>& numbers);
    void spoil(std::vector<std::uint8_t>& numbers);
    void spoil(std::vector<float>& numbers);

  private:
    std::span<const std::uint8_t> bytes_;
};

// A ragged array whose memory is exactly as large as it says, so that AddressSanitizer sees one step too far.
template <class T>
struct Lists {
    std::vector<std::int64_t> offsets{0};
    std::vector<T> values;

    void push(const std::vector<T>& list) {
        values.insert(values.end(), list.begin(), list.end());
        offsets.push_back(static_cast<std::int64_t>(values.size()));
    }
    [[nodiscard]] pyfast::Ragged<T> view() const { return {offsets, values}; }
};

// What the ops of pools read.
struct Problem {
    explicit Problem(Input& in);

    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> indptr32;  // in place of it, where `narrow`
    bool narrow = false;
    std::vector<std::int32_t> indices;
    std::vector<float> weights;
    std::vector<std::int64_t> indices64;  // in place of `indices` and `weights`, where `wide`
    std::vector<double> weights64;
    bool wide = false;
    std::int64_t terms = 0;
    Lists<std::int32_t> pools;
    Lists<std::int32_t> questions;  // term ids, a list per pool
    std::vector<float> semantic;    // per node
    std::vector<float> structural;
    std::vector<std::uint8_t> is_table;
    std::vector<std::int64_t> cell_offsets{0};  // per document: its lists among `cells`
    Lists<std::int32_t> cells;
    std::vector<std::int64_t> groups{0};  // of pools, to be fused
    int threads = 1;

    [[nodiscard]] pyfast::Forward forward() const;
    [[nodiscard]] std::size_t nodes() const { return pools.values.size(); }

  private:
    void spoil(Input& in);
    void spoil_terms(Input& in);
    void fit();
};

// Ends the program where a result is not what it promises, in every build type.
#define REQUIRE(condition) ((condition) ? static_cast<void>(0) : fuzz::fail(__FILE__, __LINE__, #condition))
[[noreturn]] void fail(const char* file, int line, const char* condition);

// Offsets that start at 0, never decrease and end at `values`.
[[nodiscard]] bool well_formed(std::span<const std::int64_t> offsets, std::size_t values);

// An op on arguments made of the input. It may throw pyfast::Error, and nothing else.
struct Target {
    const char* name;
    void (*run)(Input& in);
    std::int64_t results = 0;
    std::int64_t refusals = 0;
};
[[nodiscard]] std::span<Target> targets();

}  // namespace fuzz
