#include "pyfast/weighted_degree.hpp"

#include <array>
#include <string>
#include <vector>

#include "parallel.hpp"
#include "pool_graph.hpp"
#include "pyfast/error.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

struct Workspace {
    // What the closed forms need of a term: S_t and df_t, by the term's id in the index. All zero between pools.
    struct Term {
        double sum = 0.0;
        double df = 0.0;
    };

    std::vector<Row> rows;
    std::vector<Term> terms;
    PoolGraph graph;

    void trim() { graph.trim(); }
};

void degree_from_edges(Workspace& space, EdgeWeight weight, std::span<float> degree) {
    space.graph.prepare(weight);
    for (std::size_t i = 0; i < degree.size(); ++i) {
        const std::span<const float> row = space.graph.row(i);
        double total = 0.0;
        for (std::size_t j = 0; j < row.size(); ++j) {
            total += j == i ? 0.0 : static_cast<double>(row[j]);
        }
        degree[i] = static_cast<float>(total);
    }
}

void degree_in_closed_form(Workspace& space, EdgeWeight weight, std::span<float> degree) {
    Workspace::Term* const terms = space.terms.data();
    for (const Row& row : space.rows) {
        for (std::size_t e = 0; e < row.terms.size(); ++e) {
            Workspace::Term& term = terms[row.terms[e]];
            term = {term.sum + static_cast<double>(row.weights[e]), term.df + 1.0};
        }
    }
    for (std::size_t i = 0; i < degree.size(); ++i) {
        const Row& row = space.rows[i];
        // Four sums in flight: one alone would wait for each addition.
        std::array<double, 4> totals{};
        for (std::size_t e = 0; e < row.terms.size(); ++e) {
            const Workspace::Term term = terms[row.terms[e]];
            const auto x = static_cast<double>(row.weights[e]);
            totals[e % 4] += weight == EdgeWeight::sum ? (term.df - 2.0) * x + term.sum : x * (term.sum - x);
        }
        degree[i] = static_cast<float>((totals[0] + totals[1]) + (totals[2] + totals[3]));
    }
    for (const Row& row : space.rows) {
        for (const std::int32_t term : row.terms) {
            terms[term] = {};
        }
    }
}

}  // namespace

void weighted_degree(const Forward& x, const Pools& pools, EdgeWeight weight, int threads,
                     std::span<float> degree) {
    check_offsets(pools.offsets, pools.values.size(), "pool_offsets");
    if (degree.size() != pools.values.size()) {
        throw Error("degree: must hold one number per node");
    }
    const auto make = [&] {
        Reused<Workspace> space;
        if (space->terms.size() < static_cast<std::size_t>(x.terms)) {
            space->terms.resize(static_cast<std::size_t>(x.terms));
        }
        return space;
    };
    parallel_for(pools.size(), threads, 1, make, [&](Reused<Workspace>& reused, std::size_t p) {
        Workspace& space = *reused;
        const auto documents = pools[p];
        const auto out = degree.subspan(static_cast<std::size_t>(pools.offsets[p]), documents.size());
        if (weight == EdgeWeight::min) {
            space.graph.terms.gather(x, documents, {});
            degree_from_edges(space, weight, out);
        } else {
            space.rows.clear();
            for (const std::int32_t document : documents) {
                space.rows.push_back(checked_row(x, document));
            }
            degree_in_closed_form(space, weight, out);
        }
    });
}

}  // namespace pyfast
