#include "fuzz_input.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>

namespace fuzz {

namespace {

constexpr std::int64_t far_out[] = {
    -1,
    std::numeric_limits<std::int64_t>::min(),
    std::numeric_limits<std::int64_t>::max(),
    std::numeric_limits<std::int64_t>::max() - 1,
    std::numeric_limits<std::int32_t>::min(),
    std::numeric_limits<std::int32_t>::max(),
    std::int64_t{1} << 31,
    std::int64_t{1} << 32,
    (std::int64_t{1} << 32) + 1,
    std::int64_t{1} << 62,
};

constexpr float odd_numbers[] = {
    0.0f,
    -0.0f,
    -1.0f,
    1e-45f,
    1e-30f,
    1e16f,
    1.1e16f,
    3e38f,
    -3e38f,
    std::numeric_limits<float>::infinity(),
    -std::numeric_limits<float>::infinity(),
    std::numeric_limits<float>::quiet_NaN(),
};

template <class T, class Draw>
void spoil_one(Input& in, std::vector<T>& numbers, const Draw& draw) {
    const auto n = static_cast<std::int64_t>(numbers.size());
    const auto place = static_cast<std::size_t>(in.below(n));
    switch (in.below(n == 0 ? 1 : 8)) {
        case 0: numbers.push_back(draw()); break;
        case 1: numbers.pop_back(); break;
        case 2: std::swap(numbers[place], numbers[static_cast<std::size_t>(in.below(n))]); break;
        case 3: numbers[place] = numbers[static_cast<std::size_t>(in.below(n))]; break;
        case 4:
            if (in.one_in(16)) {
                numbers.clear();
            }
            break;
        default: numbers[place] = draw();
    }
}

}  // namespace

std::uint64_t Input::bits(std::size_t bytes) {
    std::uint64_t out = 0;
    for (; bytes > 0 && !bytes_.empty(); --bytes, bytes_ = bytes_.subspan(1)) {
        out = out << 8 | bytes_.front();
    }
    return out;
}

std::int64_t Input::below(std::int64_t n) {
    return n < 2 ? 0 : static_cast<std::int64_t>(bits(n <= 256 ? 1 : 2) % static_cast<std::uint64_t>(n));
}

float Input::number() {
    return one_in(64) ? odd_numbers[below(std::ssize(odd_numbers))] : static_cast<float>(bits(1)) / 16.0f;
}

std::int64_t Input::setting(std::int64_t most) {
    return one_in(16) ? far_out[below(std::ssize(far_out))] : below(most + 3) - 1;
}

void Input::spoil(std::vector<std::int64_t>& numbers) {
    spoil_one(*this, numbers, [&] { return setting(std::ssize(numbers)); });
}
void Input::spoil(std::vector<std::int32_t>& numbers) {
    spoil_one(*this, numbers, [&] { return static_cast<std::int32_t>(setting(std::ssize(numbers))); });
}
void Input::spoil(std::vector<std::uint8_t>& numbers) {
    spoil_one(*this, numbers, [&] { return static_cast<std::uint8_t>(bits(1)); });
}
void Input::spoil(std::vector<float>& numbers) {
    spoil_one(*this, numbers, [&] { return one_in(2) ? odd_numbers[below(std::ssize(odd_numbers))] : number(); });
}

Problem::Problem(Input& in) {
    terms = 1 + in.below(40);
    const std::int64_t documents = in.below(12);
    const auto some_terms = [&](std::int64_t most) {
        std::vector<std::int32_t> out(static_cast<std::size_t>(in.below(most + 1)));
        std::generate(out.begin(), out.end(), [&] { return static_cast<std::int32_t>(in.below(terms)); });
        return out;
    };
    for (std::int64_t d = 0; d < documents; ++d) {
        std::vector<std::int32_t> row = some_terms(20);
        std::sort(row.begin(), row.end());
        row.erase(std::unique(row.begin(), row.end()), row.end());
        indices.insert(indices.end(), row.begin(), row.end());
        indptr.push_back(static_cast<std::int64_t>(indices.size()));
        for (std::int64_t value = in.below(3); value > 0; --value) {
            cells.push(some_terms(2));
        }
        cell_offsets.push_back(static_cast<std::int64_t>(cells.offsets.size()) - 1);
    }
    for (std::size_t e = 0; e < indices.size(); ++e) {
        weights.push_back(static_cast<float>(in.bits(1)) / 16.0f);
    }
    // Now and then a pool for which the graph has another algorithm: above 512 documents it goes row by row.
    const bool large = in.one_in(64);
    for (std::int64_t p = in.below(5); p > 0; --p) {
        const std::int64_t size = large && p == 1 ? 480 + in.below(64) : in.below(30);
        std::vector<std::int32_t> pool(static_cast<std::size_t>(documents == 0 ? 0 : size));
        std::generate(pool.begin(), pool.end(), [&] { return static_cast<std::int32_t>(in.below(documents)); });
        pools.push(pool);
        questions.push(some_terms(3));
        if (in.coin()) {
            groups.push_back(static_cast<std::int64_t>(pools.offsets.size()) - 1);
        }
    }
    groups.push_back(static_cast<std::int64_t>(pools.offsets.size()) - 1);
    for (std::size_t v = 0; v < nodes(); ++v) {
        semantic.push_back(static_cast<float>(in.bits(1)) - 100.0f);
        structural.push_back(static_cast<float>(in.bits(1)));
        is_table.push_back(in.coin() ? 1 : 0);
    }
    threads = in.one_in(8) ? static_cast<int>(in.setting(4)) : 1;
    wide = in.one_in(4);
    narrow = in.one_in(4);
    if (narrow) {
        indptr32.assign(indptr.begin(), indptr.end());
    }
    for (std::int64_t times = in.below(5); times > 1; --times) {
        spoil(in);
    }
    fit();
    if (wide) {
        indices64.assign(indices.begin(), indices.end());
        weights64.assign(weights.begin(), weights.end());
    }
}

void Problem::spoil(Input& in) {
    switch (in.below(13)) {
        case 0: narrow ? in.spoil(indptr32) : in.spoil(indptr); break;
        case 1: in.spoil(indices); break;
        case 2: in.spoil(weights); break;
        case 3: in.spoil(pools.offsets); break;
        case 4: in.spoil(pools.values); break;
        case 5: in.spoil(questions.offsets); break;
        case 6: in.spoil(questions.values); break;
        case 7: in.spoil(semantic); break;
        case 8: in.spoil(structural); break;
        case 9: in.spoil(is_table); break;
        case 10: in.spoil(cell_offsets); break;
        case 11: in.coin() ? in.spoil(cells.offsets) : in.spoil(cells.values); break;
        default: in.coin() ? in.spoil(groups) : spoil_terms(in);
    }
}

void Problem::spoil_terms(Input& in) {
    terms = in.setting(std::clamp<std::int64_t>(terms, 0, 1 << 16));  // it may be far out already
    // Ops have tables of that many terms, pages that nobody touches; a sanitizer would touch them all.
    const bool much = terms >= (1 << 16) && terms <= std::int64_t{1} << 31;
    terms = much ? terms % (1 << 16) : terms;
}

void Problem::fit() {
    indptr.shrink_to_fit();
    indptr32.shrink_to_fit();
    indices.shrink_to_fit();
    weights.shrink_to_fit();
    for (Lists<std::int32_t>* lists : {&pools, &questions, &cells}) {
        lists->offsets.shrink_to_fit();
        lists->values.shrink_to_fit();
    }
    semantic.shrink_to_fit();
    structural.shrink_to_fit();
    is_table.shrink_to_fit();
    cell_offsets.shrink_to_fit();
    groups.shrink_to_fit();
}

pyfast::Forward Problem::forward() const {
    pyfast::Forward x{{}, {}, {}, {}, terms};
    if (wide) {
        x.indices64 = indices64;
        x.weights64 = weights64;
    } else {
        x.indices = indices;
        x.weights = weights;
    }
    if (narrow) {
        x.indptr32 = indptr32;
    } else {
        x.indptr64 = indptr;
    }
    return x;
}

void fail(const char* file, int line, const char* condition) {
    std::fprintf(stderr, "%s:%d: %s\n", file, line, condition);
    std::abort();
}

bool well_formed(std::span<const std::int64_t> offsets, std::size_t values) {
    return !offsets.empty() && offsets.front() == 0 && std::is_sorted(offsets.begin(), offsets.end()) &&
           offsets.back() == static_cast<std::int64_t>(values);
}

}  // namespace fuzz
