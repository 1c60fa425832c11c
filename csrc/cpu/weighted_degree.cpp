#include "pyfast/weighted_degree.hpp"

#include <array>
#include <string>
#include <vector>

#include "checked_offsets.hpp"
#include "multiversion.hpp"
#include "parallel.hpp"
#include "pool_graph.hpp"
#include "pyfast/error.hpp"
#include "reused.hpp"
#include "zeroed.hpp"

namespace pyfast {

namespace {

struct Workspace {
    // The data of a term for the formulas, by term id: {sum of its weights, base + number of them}. A value up to
    // `base` belongs to an earlier pass. So nothing is cleared between passes.
    using Term [[gnu::vector_size(2 * sizeof(double))]] = double;

    std::vector<Row> rows;
    RowMemory memory;  // for rows that are not read in place
    Zeroed<Term> terms;
    double base = 0.0;
    std::vector<double> totals;  // for each document
    PoolGraph graph;

    void trim() {
        memory.trim();
        terms.trim();
        graph.trim();
    }
};

void degree_from_edges(Workspace& space, const WeightedDegreeOptions& options, std::span<float> degree) {
    space.graph.prepare(options.weight, options.function);
    for (std::size_t i = 0; i < degree.size(); ++i) {
        const std::span<const float> row = space.graph.row(i);
        double total = 0.0;
        for (std::size_t j = 0; j < row.size(); ++j) {
            total += j == i || row[j] < 0.0f ? 0.0 : static_cast<double>(row[j]);  // below 0: no edge
        }
        degree[i] = static_cast<float>(total);
    }
}

// The data of a term so far. No branch: the processor cannot predict whether the term is new.
[[gnu::always_inline]] inline Workspace::Term known(const Workspace::Term& term, double base) {
    return Workspace::Term{term[1], term[1]} > base ? term : Workspace::Term{0.0, base};
}

// The sum of part(e) over the entries of a row. Four sums run in parallel, because a single one would wait for
// each addition.
template <class Part>
[[gnu::always_inline]] inline double total_of(const Row& row, const Part& part) {
    std::array<double, 4> totals{};
    std::size_t e = 0;
    for (; e + 4 <= row.terms.size(); e += 4) {
        for (std::size_t k = 0; k < 4; ++k) {
            totals[k] += part(e + k);
        }
    }
    for (; e < row.terms.size(); ++e) {
        totals[0] += part(e);
    }
    return (totals[0] + totals[1]) + (totals[2] + totals[3]);
}

PYFAST_MULTIVERSION void degree_of_sum(Workspace& space, std::span<float> degree) {
    using Term = Workspace::Term;
    Term* const terms = space.terms.data();
    const std::uint32_t keep = space.terms.keep();
    const double base = space.base;
    for (const Row& row : space.rows) {
        for (std::size_t e = 0; e < row.terms.size(); ++e) {
            Term& term = terms[static_cast<std::uint32_t>(row.terms[e]) & keep];
            term = known(term, base) + Term{static_cast<double>(row.weights[e]), 1.0};
        }
    }
    space.base += static_cast<double>(degree.size());
    for (std::size_t i = 0; i < degree.size(); ++i) {
        const Row& row = space.rows[i];
        degree[i] = static_cast<float>(total_of(row, [&](std::size_t e) {
            const Term term = terms[static_cast<std::uint32_t>(row.terms[e]) & keep];
            return (term[1] - base - 2.0) * static_cast<double>(row.weights[e]) + term[0];
        }));
    }
}

// The weights of the other documents are added up from both ends of the pool. S_t - x_it would lose all precision
// if x_it is most of S_t.
PYFAST_MULTIVERSION void degree_of_dot(Workspace& space, std::span<float> degree) {
    using Term = Workspace::Term;
    Term* const terms = space.terms.data();
    const std::uint32_t keep = space.terms.keep();
    const auto others = [&](const Row& row) {
        const double base = space.base;
        return total_of(row, [&](std::size_t e) {
            Term& term = terms[static_cast<std::uint32_t>(row.terms[e]) & keep];
            const Term before = known(term, base);
            const auto x = static_cast<double>(row.weights[e]);
            term = before + Term{x, 1.0};
            return x * before[0];
        });
    };
    const std::size_t n = degree.size();
    space.totals.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        space.totals[i] = others(space.rows[i]);
    }
    space.base += static_cast<double>(n);
    for (std::size_t i = n; i-- > 0;) {
        degree[i] = static_cast<float>(space.totals[i] + others(space.rows[i]));
    }
    space.base += static_cast<double>(n);
}

}  // namespace

void weighted_degree(const Forward& x, const Pools& given, const WeightedDegreeOptions& options,
                     std::span<float> degree) {
    const auto offsets = checked_offsets(given.offsets, given.values.size(), "pool_offsets");
    const Pools pools{offsets, given.values};
    if (degree.size() != pools.values.size()) {
        throw Error("degree: must hold one number per node");
    }
    const auto make = [&] {
        Reused<Workspace> space;
        space->terms.make_room(x.terms);
        return space;
    };
    parallel_for(pools.size(), options.threads, 1, make, [&](Reused<Workspace>& reused, std::size_t p) {
        Workspace& space = *reused;
        const auto documents = pools[p];
        const auto out = degree.subspan(static_cast<std::size_t>(pools.offsets[p]), documents.size());
        const bool edges = options.weight == EdgeWeight::min || options.function != nullptr;
        if (edges || options.idf == Idf::pool) {
            space.graph.terms.gather(x, documents, {}, options.idf);
        }
        if (edges) {
            degree_from_edges(space, options, out);
            return;
        }
        space.rows.clear();
        if (options.idf == Idf::pool) {
            space.rows = space.graph.terms.rows;
        } else {
            check_documents(x, documents);
            space.memory.clear();
            for (const std::int32_t document : documents) {
                space.rows.push_back(checked_row(x, document, space.memory));
            }
        }
        if (options.weight == EdgeWeight::sum) {
            degree_of_sum(space, out);
        } else {
            degree_of_dot(space, out);
        }
    });
}

}  // namespace pyfast
