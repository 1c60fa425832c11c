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
    // What the closed forms need of a term: {S_t, base + df_t}, by the term's id in the index. What is not above
    // `base` is an earlier pool's, so nothing has to be cleared between pools.
    using Term [[gnu::vector_size(2 * sizeof(double))]] = double;

    std::vector<Row> rows;
    RowMemory memory;  // of rows that are not read where they lie
    Zeroed<Term> terms;
    double base = 0.0;
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

PYFAST_MULTIVERSION void degree_in_closed_form(Workspace& space, EdgeWeight weight, std::span<float> degree) {
    using Term = Workspace::Term;
    Term* const terms = space.terms.data();
    const std::uint32_t keep = space.terms.keep();
    const double base = space.base;
    for (const Row& row : space.rows) {
        for (std::size_t e = 0; e < row.terms.size(); ++e) {
            Term& term = terms[static_cast<std::uint32_t>(row.terms[e]) & keep];
            // Without a branch: whether a term is new is a coin toss for the processor.
            const Term known = Term{term[1], term[1]} > base ? term : Term{0.0, base};
            term = known + Term{static_cast<double>(row.weights[e]), 1.0};
        }
    }
    space.base += static_cast<double>(degree.size());
    for (std::size_t i = 0; i < degree.size(); ++i) {
        const Row& row = space.rows[i];
        const auto part = [&](std::size_t e) {
            const Term term = terms[static_cast<std::uint32_t>(row.terms[e]) & keep];
            const auto x = static_cast<double>(row.weights[e]);
            return weight == EdgeWeight::sum ? (term[1] - base - 2.0) * x + term[0] : x * (term[0] - x);
        };
        std::array<double, 4> totals{};  // in flight: one sum alone would wait for each addition
        std::size_t e = 0;
        for (; e + 4 <= row.terms.size(); e += 4) {
            for (std::size_t k = 0; k < 4; ++k) {
                totals[k] += part(e + k);
            }
        }
        for (; e < row.terms.size(); ++e) {
            totals[0] += part(e);
        }
        degree[i] = static_cast<float>((totals[0] + totals[1]) + (totals[2] + totals[3]));
    }
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
        degree_in_closed_form(space, options.weight, out);
    });
}

}  // namespace pyfast
