#include "pyfast/select_sentences.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "checked_offsets.hpp"
#include "parallel.hpp"
#include "pool_terms.hpp"
#include "pyfast/error.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

// The two most relevant passages that have a term, each by its most relevant sentence.
struct Holders {
    double best = 0.0;
    double second = 0.0;
    std::size_t passage = 0;  // of the best

    void add(double relevance, std::size_t of) {
        if (relevance > best) {
            second = of == passage ? second : best;
            best = relevance;
            passage = of;
        } else if (of != passage) {
            second = std::max(second, relevance);
        }
    }
    [[nodiscard]] double outside(std::size_t of) const { return of == passage ? second : best; }
};

struct Workspace {
    PoolTerms terms;
    std::vector<std::int32_t> rows;
    std::vector<std::size_t> passage;  // of each sentence of the pool
    std::vector<double> asked;         // for each term: its weight in the question, or 0
    std::vector<double> coverage;      // of each sentence, then of each title: the share of the question's weight
    std::vector<double> relevance;
    std::vector<double> score;  // of each passage, from 0 to 1
    std::vector<double> named;  // of each passage: the share of its title's terms in the question
    std::vector<double> title;  // of each passage: the most relevant sentence elsewhere that has its whole title
    std::vector<Holders> holders;
    std::vector<std::int64_t> stamp;  // for each term: the last sentence that has it, counted from 1
    std::vector<double> value;
    std::vector<std::size_t> order;

    void trim() { terms.trim(); }
};

// How many shared terms count for a sentence: a few rare ones say more than many.
constexpr std::size_t shared_terms = 4;

// What a sentence shares with relevant sentences of other passages: the mean of its strongest terms, without those
// of the question.
double shared(const Workspace& space, std::size_t s) {
    std::array<double, shared_terms> best{};
    const auto numbers = space.terms.numbers(s);
    for (std::size_t e = 0; e < numbers.size(); ++e) {
        const auto term = static_cast<std::size_t>(numbers[e]);
        if (space.asked[term] == 0.0) {
            const double weight = static_cast<double>(space.terms.rows[s].weights[e]);
            const double strength = weight * space.holders[term].outside(space.passage[s]);
            if (strength > best.back()) {
                best.back() = strength;
                std::sort(best.begin(), best.end(), std::greater<>());
            }
        }
    }
    return std::accumulate(best.begin(), best.end(), 0.0) / static_cast<double>(shared_terms);
}

// The value of each sentence of a pool, in space.value.
void weigh(Workspace& space, const Forward& x, const PoolSentences& given, std::size_t pool, std::size_t first,
           std::size_t passages, std::size_t begin, std::size_t sentences) {
    const std::size_t all = given.lengths.size();
    const std::size_t of_passages = given.semantic.size();
    space.rows.resize(sentences + passages + 1);
    std::iota(space.rows.begin(), space.rows.begin() + static_cast<std::ptrdiff_t>(sentences),
              static_cast<std::int32_t>(begin));
    std::iota(space.rows.begin() + static_cast<std::ptrdiff_t>(sentences), space.rows.end() - 1,
              static_cast<std::int32_t>(all + first));
    space.rows.back() = static_cast<std::int32_t>(all + of_passages + pool);
    space.terms.gather(x, space.rows, {});
    const PoolTerms& terms = space.terms;

    space.asked.assign(terms.terms(), 0.0);
    double whole = 0.0;
    const auto question = terms.numbers(sentences + passages);
    for (std::size_t e = 0; e < question.size(); ++e) {
        const auto weight = static_cast<double>(terms.rows.back().weights[e]);
        space.asked[static_cast<std::size_t>(question[e])] = weight;
        whole += weight;
    }
    space.coverage.assign(sentences, 0.0);
    for (std::size_t s = 0; s < sentences && whole > 0.0; ++s) {
        for (const std::int32_t term : terms.numbers(s)) {
            space.coverage[s] += space.asked[static_cast<std::size_t>(term)] / whole;
        }
    }
    const auto semantic = given.semantic.subspan(first, passages);
    const double top = *std::max_element(semantic.begin(), semantic.end());
    space.score.resize(passages);
    std::transform(semantic.begin(), semantic.end(), space.score.begin(), [top](float score) {
        return top > 0.0 ? std::max(static_cast<double>(score), 0.0) / top : 0.0;
    });
    space.relevance.resize(sentences);
    space.holders.assign(terms.terms(), {0.0, 0.0, std::numeric_limits<std::size_t>::max()});
    for (std::size_t s = 0; s < sentences; ++s) {
        space.relevance[s] = space.coverage[s] + 0.7 * space.score[space.passage[s]];
        for (const std::int32_t term : terms.numbers(s)) {
            space.holders[static_cast<std::size_t>(term)].add(space.relevance[s], space.passage[s]);
        }
    }
    space.named.assign(passages, 0.0);
    for (std::size_t i = 0; i < passages; ++i) {
        const auto title = terms.numbers(sentences + i);
        const auto known = std::count_if(title.begin(), title.end(), [&](std::int32_t term) {
            return std::find(question.begin(), question.end(), term) != question.end();
        });
        space.named[i] = title.empty() ? 0.0 : static_cast<double>(known) / static_cast<double>(title.size());
    }
    space.title.assign(passages, 0.0);
    space.stamp.assign(terms.terms(), 0);
    for (std::size_t s = 0; s < sentences; ++s) {
        const auto mark = static_cast<std::int64_t>(s) + 1;
        for (const std::int32_t term : terms.numbers(s)) {
            space.stamp[static_cast<std::size_t>(term)] = mark;
        }
        for (std::size_t i = 0; i < passages; ++i) {
            const auto title = terms.numbers(sentences + i);
            if (i != space.passage[s] && space.relevance[s] > space.title[i] && !title.empty() &&
                std::all_of(title.begin(), title.end(), [&](std::int32_t term) {
                    return space.stamp[static_cast<std::size_t>(term)] == mark;
                })) {
                space.title[i] = space.relevance[s];
            }
        }
    }
    space.value.resize(sentences);
    double opening = 0.0;
    for (std::size_t s = 0; s < sentences; ++s) {
        const std::size_t i = space.passage[s];
        if (s == 0 || space.passage[s - 1] != i) {
            opening = space.coverage[s];
        }
        const double sum = 2.0 * space.coverage[s] + 1.5 * space.score[i] + 2.0 * shared(space, s) +
                           space.title[i] + (space.named[i] + opening) / 2.0;
        space.value[s] =
            sum / std::sqrt(std::sqrt(static_cast<double>(std::max<std::int64_t>(given.lengths[begin + s], 1))));
    }
}

// The most valuable sentences that fit into the budget.
void choose(Workspace& space, const PoolSentences& given, std::size_t begin, std::int64_t budget,
            std::span<std::uint8_t> kept) {
    space.order.resize(kept.size());
    std::iota(space.order.begin(), space.order.end(), std::size_t{0});
    std::stable_sort(space.order.begin(), space.order.end(),
                     [&](std::size_t a, std::size_t b) { return space.value[a] > space.value[b]; });
    std::int64_t left = budget;
    bool is_first = true;
    const auto length = [&](std::size_t s) { return given.lengths[begin + s]; };
    for (const std::size_t s : space.order) {
        if (kept[s] == 0 && (is_first || length(s) <= left)) {
            kept[s] = 1;
            left -= std::min(length(s), left);
            is_first = false;
            for (std::size_t at = s; at > 0 && given.dependent[begin + at] != 0 && kept[at - 1] == 0 &&
                                     space.passage[at - 1] == space.passage[s] && length(at - 1) <= left;
                 --at) {
                kept[at - 1] = 1;
                left -= length(at - 1);
            }
        }
    }
}

}  // namespace

void select_sentences(const Forward& x, const PoolSentences& given, std::span<const std::int64_t> budgets,
                      int threads, std::span<std::uint8_t> kept) {
    const std::size_t sentences = given.lengths.size();
    const std::size_t passages = given.semantic.size();
    const auto pools = checked_offsets(given.pool_offsets, passages, "pool_offsets");
    const auto cuts = checked_offsets(given.sentence_offsets, sentences, "sentence_offsets");
    if (cuts.size() != passages + 1) {
        throw Error("sentence_offsets: must hold one more number than there are passages (" +
                    std::to_string(passages) + ")");
    }
    if (given.dependent.size() != sentences || kept.size() != sentences) {
        throw Error("dependent: must hold one flag for each sentence (" + std::to_string(sentences) + ")");
    }
    if (budgets.size() + 1 != pools.size()) {
        throw Error("budgets: expected one for each pool (" + std::to_string(pools.size() - 1) + "), got " +
                    std::to_string(budgets.size()));
    }
    const std::size_t rows = sentences + passages + budgets.size();
    if (x.documents() != static_cast<std::int64_t>(rows) ||
        rows > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
        throw Error("X: must hold one row for each sentence, each passage and each pool (" + std::to_string(rows) +
                    "), got " + std::to_string(x.documents()));
    }
    check_finite(given.semantic, "semantic");
    const std::vector<std::int64_t> lengths(given.lengths.begin(), given.lengths.end());
    constexpr std::int64_t longest = std::int64_t{1} << 31;
    if (std::any_of(lengths.begin(), lengths.end(), [](std::int64_t n) { return n < 0 || n > longest; })) {
        throw Error("lengths: must be from 0 to " + std::to_string(longest));
    }
    const PoolSentences own{pools, cuts, given.semantic, lengths, given.dependent};
    parallel_for(
        budgets.size(), threads, 1, [] { return Reused<Workspace>(); },
        [&](Reused<Workspace>& reused, std::size_t p) {
            Workspace& space = *reused;
            const auto first = static_cast<std::size_t>(pools[p]);
            const auto stop = static_cast<std::size_t>(pools[p + 1]);
            const auto begin = static_cast<std::size_t>(cuts[first]);
            const auto count = static_cast<std::size_t>(cuts[stop]) - begin;
            const auto chosen = kept.subspan(begin, count);
            std::fill(chosen.begin(), chosen.end(), std::uint8_t{0});
            if (count == 0) {
                return;
            }
            space.passage.clear();
            for (std::size_t i = first; i < stop; ++i) {
                space.passage.resize(static_cast<std::size_t>(cuts[i + 1]) - begin, i - first);
            }
            weigh(space, x, own, p, first, stop - first, begin, count);
            choose(space, own, begin, std::max<std::int64_t>(budgets[p], 0), chosen);
        });
}

}  // namespace pyfast
