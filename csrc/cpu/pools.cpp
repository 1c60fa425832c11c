#include "pyfast/pools.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "multiversion.hpp"
#include "pyfast/error.hpp"

namespace pyfast {

namespace {

struct RowFaults {
    bool order;
    bool weight;
};

// Vectors of 8; the last one overlaps the one before, so that no entry is left to a scalar loop. They run over
// every entry of every pool.
PYFAST_MULTIVERSION RowFaults find_faults(const std::int32_t* terms, const float* weights, std::size_t n) {
    constexpr std::size_t lanes = 8;
    using Ints [[gnu::vector_size(lanes * sizeof(std::int32_t))]] = std::int32_t;
    using Floats [[gnu::vector_size(lanes * sizeof(float))]] = float;
    constexpr float largest = Forward::largest_weight;
    std::int32_t disorder = 0;
    std::int32_t unusable = 0;
    if (n <= lanes) {
        for (std::size_t e = 0; e < n; ++e) {
            disorder |= e > 0 && terms[e] <= terms[e - 1] ? 1 : 0;
            unusable |= weights[e] >= 0.0f && weights[e] <= largest ? 0 : 1;
        }
        return {disorder != 0, unusable != 0};
    }
    Ints disorders{};
    Ints usables = Ints{} - 1;
    for (std::size_t e = 0; e < n; e += lanes) {
        const std::size_t at = std::min(e, n - lanes);
        Floats w;
        std::memcpy(&w, weights + at, sizeof w);
        usables &= (w >= 0.0f) & (w <= largest);
        Ints here;
        Ints before;
        const std::size_t second = std::max<std::size_t>(at, 1);  // n > lanes: still inside
        std::memcpy(&here, terms + second, sizeof here);
        std::memcpy(&before, terms + second - 1, sizeof before);
        disorders |= here <= before;
    }
    for (std::size_t v = 0; v < lanes; ++v) {
        disorder |= disorders[v];
        unusable |= ~usables[v];
    }
    return {disorder != 0, unusable != 0};
}

}  // namespace

void check_documents(const Forward& x, std::span<const std::int32_t> documents, const char* name) {
    for (const std::int32_t document : documents) {
        if (document < 0 || document >= x.documents()) {
            throw Error(std::string(name) + ": document " + std::to_string(document) +
                        " is outside the forward index of " + std::to_string(x.documents()) + " documents");
        }
    }
}

Row row_of(const Forward& x, std::int32_t i, const char* name) {
    const std::int64_t begin = x.offset(i);
    const std::int64_t end = x.offset(i + 1);
    if (begin < 0 || end < begin || end > static_cast<std::int64_t>(x.indices.size()) ||
        x.indices.size() != x.weights.size()) {
        throw Error(std::string(name) + ": row " + std::to_string(i) + " spans entries " + std::to_string(begin) +
                    " to " + std::to_string(end) + " of " + std::to_string(x.indices.size()));
    }
    return {x.indices.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
            x.weights.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))};
}

void check_row(const Row& row, std::int64_t columns, const char* name, std::int32_t i) {
    const RowFaults faults = find_faults(row.terms.data(), row.weights.data(), row.terms.size());
    if (faults.order || (!row.terms.empty() && (row.terms.front() < 0 || row.terms.back() >= columns))) {
        throw Error(std::string(name) + ": the column ids of row " + std::to_string(i) +
                    " are not strictly increasing from 0 and below " + std::to_string(columns) +
                    "; call sum_duplicates()");
    }
    if (faults.weight) {
        throw Error(std::string(name) + ": a weight of row " + std::to_string(i) +
                    " is negative, NaN or above 1e16");
    }
}

Row checked_row(const Forward& x, std::int32_t document) {
    check_documents(x, {&document, 1});
    const Row row = row_of(x, document, "X");
    check_row(row, x.terms, "X", document);
    return row;
}

void check_masked(const Forward& x, std::span<const std::int32_t> terms) {
    for (const std::int32_t term : terms) {
        if (term < 0 || term >= x.terms) {
            throw Error("masked term " + std::to_string(term) + " is outside the vocabulary of " +
                        std::to_string(x.terms) + " terms");
        }
    }
}

void check_offsets(std::span<const std::int64_t> offsets, std::size_t values, const char* name) {
    const std::string argument(name);
    if (offsets.empty() || offsets.front() != 0) {
        throw Error(argument + ": must hold one more number than there are lists, and start at 0");
    }
    for (std::size_t p = 1; p < offsets.size(); ++p) {
        if (offsets[p] < offsets[p - 1]) {
            throw Error(argument + ": decreases at position " + std::to_string(p));
        }
    }
    if (offsets.back() != static_cast<std::int64_t>(values)) {
        throw Error(argument + ": ends at " + std::to_string(offsets.back()) + ", but there are " +
                    std::to_string(values) + " values");
    }
}

void check_finite(std::span<const float> scores, const char* name) {
    for (std::size_t v = 0; v < scores.size(); ++v) {
        if (!std::isfinite(scores[v])) {
            throw Error(std::string(name) + ": value " + std::to_string(v) + " is infinite or NaN");
        }
    }
}

}  // namespace pyfast
