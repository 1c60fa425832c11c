#include "pyfast/pools.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "multiversion.hpp"
#include "pyfast/error.hpp"

namespace pyfast {

namespace {

struct RowFaults {
    bool order;
    bool weight;
};

// Vectors of 8. The last one overlaps the one before, so no scalar loop is needed. These loops read each entry of
// each pool.
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
        const std::size_t second = std::max<std::size_t>(at, 1);  // n > lanes, so this is still inside
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

void check_columns(bool inside, const char* name, std::int32_t i, std::int64_t columns) {
    if (!inside) {
        throw Error(std::string(name) + ".indices: row " + std::to_string(i) +
                    " has a column id that is negative or not below " + std::to_string(columns));
    }
}

// Sorts `terms`, and adds up the weights of duplicates in the row's order.
template <class Weight>
void put_in_order(std::vector<std::int32_t>& terms, const Weight* weights, std::vector<float>& out,
                  std::vector<std::uint64_t>& keys) {
    keys.resize(terms.size());  // the term, then its position
    for (std::size_t e = 0; e < keys.size(); ++e) {
        keys[e] = static_cast<std::uint64_t>(terms[e]) << 32 | e;
    }
    std::sort(keys.begin(), keys.end());
    std::size_t kept = 0;
    for (std::size_t e = 0; e < keys.size();) {
        const std::uint64_t term = keys[e] >> 32;
        double sum = 0.0;
        for (; e < keys.size() && keys[e] >> 32 == term; ++e) {
            sum += static_cast<double>(weights[keys[e] & 0xFFFFFFFF]);
        }
        terms[kept] = static_cast<std::int32_t>(term);
        out[kept++] = static_cast<float>(sum);
    }
    terms.resize(kept);
    out.resize(kept);
}

// Copies a row into memory, in the width and order that ops need.
template <class Id, class Weight>
Row made_row(std::span<const Id> ids, std::span<const Weight> weights, std::int64_t columns, RowMemory& memory,
             const char* name, std::int32_t i) {
    if (ids.size() > std::numeric_limits<std::uint32_t>::max()) {
        throw Error(std::string(name) + ": row " + std::to_string(i) + " has more than 2^32 entries");
    }
    auto& [terms, made] = memory.next();
    terms.resize(ids.size());
    made.resize(ids.size());
    bool inside = true;
    bool in_order = true;
    for (std::size_t e = 0; e < ids.size(); ++e) {
        const Id id = ids[e];
        inside &= id >= 0 && static_cast<std::int64_t>(id) < columns;
        terms[e] = static_cast<std::int32_t>(id);
        in_order &= e == 0 || terms[e] > terms[e - 1];
        made[e] = static_cast<float>(weights[e]);
    }
    check_columns(inside, name, i, columns);
    if (!in_order) {
        put_in_order(terms, weights.data(), made, memory.keys);
    }
    return {terms, made};
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

Extent extent_of(const Forward& x, std::int32_t i, const char* name) {
    const std::size_t entries = x.indices64.empty() ? x.indices.size() : x.indices64.size();
    const std::size_t weights = x.weights64.empty() ? x.weights.size() : x.weights64.size();
    if (entries != weights) {
        throw Error(std::string(name) + ".data: expected one weight for each index (" + std::to_string(entries) +
                    "), got " + std::to_string(weights));
    }
    if (i < 0 || i >= x.documents()) {
        throw Error(std::string(name) + ": there is no row " + std::to_string(i) +
                    "; number of rows: " + std::to_string(x.documents()));
    }
    const std::int64_t begin = x.offset(i);
    const std::int64_t end = x.offset(i + 1);
    if (begin < 0 || end < begin || end > static_cast<std::int64_t>(entries)) {
        throw Error(std::string(name) + ".indptr: row " + std::to_string(i) + " starts at " +
                    std::to_string(begin) + " and ends at " + std::to_string(end) +
                    "; number of entries: " + std::to_string(entries));
    }
    return {static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)};
}

Row checked_row(const Forward& x, std::int32_t i, RowMemory& memory, const char* name) {
    const auto [begin, size] = extent_of(x, i, name);
    const bool wide_ids = !x.indices64.empty();
    const bool wide_weights = !x.weights64.empty();
    const auto made = [&](const auto& ids, const auto& weights) {
        return made_row(ids.subspan(begin, size), weights.subspan(begin, size), x.terms, memory, name, i);
    };
    Row row;
    if (wide_ids) {
        row = wide_weights ? made(x.indices64, x.weights64) : made(x.indices64, x.weights);
    } else if (wide_weights) {
        row = made(x.indices, x.weights64);
    } else {
        row = {x.indices.subspan(begin, size), x.weights.subspan(begin, size)};
    }
    RowFaults faults = find_faults(row.terms.data(), row.weights.data(), row.terms.size());
    if (faults.order) {
        row = made(x.indices, x.weights);
        faults = find_faults(row.terms.data(), row.weights.data(), row.terms.size());
    }
    check_columns(row.terms.empty() || (row.terms.front() >= 0 && row.terms.back() < x.terms), name, i, x.terms);
    if (faults.weight) {
        throw Error(std::string(name) + ".data: a weight of row " + std::to_string(i) +
                    " is negative, NaN or above 1e16");
    }
    return row;
}

void check_masked(const Forward& x, std::span<const std::int32_t> terms) {
    for (const std::int32_t term : terms) {
        if (term < 0 || term >= x.terms) {
            throw Error("mask_terms or question_terms: term " + std::to_string(term) +
                        " is outside the vocabulary of " + std::to_string(x.terms) + " terms");
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
