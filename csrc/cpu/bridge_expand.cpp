#include "pyfast/bridge_expand.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "checked_offsets.hpp"
#include "parallel.hpp"
#include "pyfast/error.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

// Sums of the same floats in another order differ by less than this, relative to their size.
constexpr float slack = 1e-4f;

// The search reads terms until the rest of the seed can add at most this share of the k-th best similarity. With
// fewer terms, more documents would have to be scored one by one.
constexpr float enough = 0.5f;

struct Neighbour {
    double similarity;
    std::int32_t document;
};

bool better(const Neighbour& a, const Neighbour& b) {
    return a.similarity != b.similarity ? a.similarity > b.similarity : a.document < b.document;
}

// A document, and its similarity `met` over the terms that were read, in one number: the document with the largest
// number is the most promising, and of equally promising ones the first. The bits of floats above 0 have the order
// of the floats. One comparison without a branch takes a third of the time of two that the processor cannot
// predict.
class Candidate {
  public:
    Candidate(float met, std::int32_t document)
        : bits_(static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(met)) << 32 |
                ~static_cast<std::uint32_t>(document)) {}
    [[nodiscard]] float met() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits_ >> 32)); }
    [[nodiscard]] std::int32_t document() const {
        return static_cast<std::int32_t>(~static_cast<std::uint32_t>(bits_));
    }
    bool operator<(const Candidate& other) const { return bits_ < other.bits_; }

    // A number from 0 to 255 that is not larger for a less promising candidate. `top` is the most promising one.
    // Similarities that differ by less than a sixteenth can have the same number.
    [[nodiscard]] std::size_t grade(const Candidate& top) const {
        constexpr int dropped = 32 + 19;
        const std::uint64_t below = (top.bits_ >> dropped) - (bits_ >> dropped);
        return 255 - std::min<std::uint64_t>(below, 255);
    }

  private:
    std::uint64_t bits_;
};

struct Workspace {
    struct Term {
        std::int32_t id;
        float weight;
        std::size_t size;  // the number of documents that have the term
        double worth;      // weight^2 / frequency
    };

    bool in_use = false;                  // still true when a seed begins: an error ended the seed before
    std::vector<float> weight;            // of the seed's terms, by term id; 0 between seeds
    std::vector<float> met;               // by document; 0 between seeds
    std::vector<std::int32_t> documents;  // the documents whose `met` is not 0
    std::vector<Term> terms;
    RowMemory seed;           // for rows that are not read in place
    RowMemory other;          // the same, for one row at a time
    std::vector<float> best;  // a min-heap
    std::vector<Candidate> candidates;
    std::vector<Candidate> promising;  // a max-heap of the best candidates, which are no longer in `candidates`
    std::vector<Neighbour> neighbours;

    void trim() {
        pyfast::trim(weight);
        pyfast::trim(met);
        pyfast::trim(documents);
        pyfast::trim(candidates);
        pyfast::trim(promising);
        seed.trim();
        other.trim();
    }
};

// The seed's terms outside the question, ordered by weight^2 / frequency: the most informative for their cost come
// first.
void choose_terms(Workspace& space, const Forward& transposed, const Row& seed,
                  std::span<const std::int32_t> masked) {
    space.terms.clear();
    for (std::size_t e = 0; e < seed.terms.size(); ++e) {
        const std::int32_t term = seed.terms[e];
        const float weight = seed.weights[e];
        if (weight > 0.0f && std::find(masked.begin(), masked.end(), term) == masked.end()) {
            const std::size_t size = extent_of(transposed, term, "XT").size;
            const auto w = static_cast<double>(weight);
            space.terms.push_back({term, weight, size, w * w / static_cast<double>(size + 1)});
        }
    }
    std::sort(space.terms.begin(), space.terms.end(),
              [](const auto& a, const auto& b) { return a.worth != b.worth ? a.worth > b.worth : a.id < b.id; });
}

[[noreturn]] void changed() {
    throw Error("X, XT: the arrays changed during the call; change them only between calls");
}

// Adds the share of a term to each document of `entries`. Returns the k-th best `met` among them, or `bar` if it
// is larger: a lower bound for the k-th best document.
float take_up(Workspace& space, float weight, const Row& entries, std::size_t k, float bar) {
    space.best.clear();
    const std::size_t before = space.documents.size();
    space.documents.resize(before + entries.terms.size());
    std::int32_t* fresh = space.documents.data() + before;
    float* const all_met = space.met.data();
    for (std::size_t e = 0; e < entries.terms.size(); ++e) {
        constexpr std::size_t ahead = 16;
        if (e + ahead < entries.terms.size()) {
            __builtin_prefetch(all_met + entries.terms[e + ahead], 1);
        }
        const std::int32_t document = entries.terms[e];
        if (static_cast<std::uint32_t>(document) >= space.met.size()) {
            changed();
        }
        float& met = all_met[document];
        const float now = met + weight * entries.weights[e];
        *fresh = document;
        fresh += met == 0.0f && now > 0.0f ? 1 : 0;
        met = now;
        if (now > bar) {
            space.best.push_back(now);
            std::push_heap(space.best.begin(), space.best.end(), std::greater<>{});
            if (space.best.size() > k) {
                std::pop_heap(space.best.begin(), space.best.end(), std::greater<>{});
                space.best.pop_back();
                bar = space.best.front();  // k documents have at least this
            }
        }
    }
    space.documents.resize(static_cast<std::size_t>(fresh - space.documents.data()));
    return bar;
}

// Moves at least `wanted` of the most promising candidates to `promising`, which is empty. With `max_entries`, few
// candidates are scored, and a heap of all of them would take more time than their scores.
void choose_candidates(Workspace& space, std::size_t wanted) {
    std::vector<Candidate>& all = space.candidates;
    std::vector<Candidate>& chosen = space.promising;
    if (all.size() <= 2 * wanted) {
        chosen.swap(all);
    } else {
        const Candidate top = *std::max_element(all.begin(), all.end());
        std::array<std::size_t, 256> graded{};
        for (const Candidate& candidate : all) {
            ++graded[candidate.grade(top)];
        }
        std::size_t least = graded.size() - 1;
        std::size_t count = graded[least];
        while (count < wanted) {
            count += graded[--least];
        }
        chosen.assign(count + 1, top);  // one more, because the loop always writes to both
        std::size_t moved = 0;
        std::size_t left = 0;
        for (const Candidate candidate : all) {
            const bool is_chosen = candidate.grade(top) >= least;
            chosen[moved] = candidate;
            all[left] = candidate;
            moved += is_chosen ? 1 : 0;
            left += is_chosen ? 0 : 1;
        }
        chosen.pop_back();
        all.resize(left, top);
    }
    std::make_heap(chosen.begin(), chosen.end());
}

double similarity(const Workspace& space, const Row& row) {
    double total = 0.0;
    for (std::size_t e = 0; e < row.terms.size(); ++e) {
        const auto term = static_cast<std::uint32_t>(row.terms[e]);
        if (term >= space.weight.size()) {
            changed();
        }
        total += static_cast<double>(space.weight[term]) * static_cast<double>(row.weights[e]);
    }
    return total;
}

void find_neighbours(Workspace& space, const Forward& x, const Forward& transposed, std::int32_t seed,
                     std::span<const std::int32_t> masked, const BridgeExpandOptions& options,
                     float largest_norm) {
    if (std::exchange(space.in_use, true)) {
        std::fill(space.weight.begin(), space.weight.end(), 0.0f);
        std::fill(space.met.begin(), space.met.end(), 0.0f);
    }
    space.seed.clear();
    const Row row = checked_row(x, seed, space.seed);
    const auto k = static_cast<std::size_t>(options.k);
    choose_terms(space, transposed, row, masked);
    double left = 0.0;  // the squared norm of the terms that were not read
    for (const Workspace::Term& term : space.terms) {
        left += static_cast<double>(term.weight) * static_cast<double>(term.weight);
    }
    // The most that the unread terms can still add to a document's similarity.
    const auto reach = [&] { return largest_norm * static_cast<float>(std::sqrt(std::max(left, 0.0))); };

    space.met[static_cast<std::size_t>(seed)] =
        -std::numeric_limits<float>::infinity();  // so that the seed is not its own neighbour
    space.documents.clear();
    float bar = 0.0f;  // a lower bound of the k-th best similarity
    std::int64_t entries = options.max_entries;
    for (const Workspace::Term& term : space.terms) {
        if (reach() < enough * bar) {
            break;
        }
        const auto size = static_cast<std::int64_t>(term.size);
        if (size > entries) {
            continue;
        }
        entries -= size;
        space.other.clear();
        bar = take_up(space, term.weight, checked_row(transposed, term.id, space.other, "XT"), k, bar);
        left -= static_cast<double>(term.weight) * static_cast<double>(term.weight);
    }

    const float more = reach();
    space.candidates.clear();
    for (const std::int32_t document : space.documents) {
        float& met = space.met[static_cast<std::size_t>(document)];
        if (met + more >= (1.0f - slack) * bar) {
            space.candidates.emplace_back(met, document);
        }
        met = 0.0f;
    }
    space.met[static_cast<std::size_t>(seed)] = 0.0f;

    for (const Workspace::Term& term : space.terms) {
        space.weight[static_cast<std::size_t>(term.id)] = term.weight;
    }
    space.neighbours.clear();
    space.promising.clear();
    std::size_t wanted = 48;
    entries = options.max_entries;
    while (entries > 0) {
        if (space.promising.empty()) {
            choose_candidates(space, wanted);
            wanted *= 2;  // so that a search without a limit reads all candidates only a few times
        }
        if (space.promising.empty()) {
            break;
        }
        std::pop_heap(space.promising.begin(), space.promising.end());
        const Candidate candidate = space.promising.back();
        space.promising.pop_back();
        if (space.neighbours.size() == k &&
            static_cast<double>((1.0f + slack) * (candidate.met() + more)) < space.neighbours.front().similarity) {
            break;
        }
        space.other.clear();
        const Row other = checked_row(x, candidate.document(), space.other);
        entries -= static_cast<std::int64_t>(other.terms.size());
        space.neighbours.push_back({similarity(space, other), candidate.document()});
        std::push_heap(space.neighbours.begin(), space.neighbours.end(), better);
        if (space.neighbours.size() > k) {
            std::pop_heap(space.neighbours.begin(), space.neighbours.end(), better);
            space.neighbours.pop_back();
        }
    }
    std::sort_heap(space.neighbours.begin(), space.neighbours.end(), better);
    for (const Workspace::Term& term : space.terms) {
        space.weight[static_cast<std::size_t>(term.id)] = 0.0f;
    }
    space.in_use = false;
}

// The largest Euclidean norm of a row.
float norm_of(const Forward& x, int threads) {
    constexpr std::size_t block = 4096;
    const auto documents = static_cast<std::size_t>(x.documents());
    std::vector<double> largest((documents + block - 1) / block);
    parallel_for(
        largest.size(), threads, 1, [] { return RowMemory(); },
        [&](RowMemory& memory, std::size_t b) {
            for (std::size_t d = b * block; d < std::min(documents, (b + 1) * block); ++d) {
                double squares = 0.0;
                memory.clear();
                for (const float w : checked_row(x, static_cast<std::int32_t>(d), memory).weights) {
                    squares += static_cast<double>(w) * static_cast<double>(w);
                }
                largest[b] = std::max(largest[b], squares);
            }
        });
    const double most = largest.empty() ? 0.0 : *std::max_element(largest.begin(), largest.end());
    return static_cast<float>(std::sqrt(most) * (1.0 + 1e-6));
}

}  // namespace

RankedPools bridge_expand(const Forward& x, const Forward& transposed, const Ragged<std::int32_t>& given,
                          const Ragged<std::int32_t>& questions, const BridgeExpandOptions& options) {
    const auto seed_offsets = checked_offsets(given.offsets, given.values.size(), "seed_offsets");
    const Ragged<std::int32_t> seeds{seed_offsets, given.values};
    const auto question_offsets = checked_offsets(questions.offsets, questions.values.size(), "question_terms");
    const Ragged<std::int32_t> question_terms{question_offsets, questions.values};
    if (question_terms.size() != seeds.size()) {
        throw Error("question_terms: expected one list for each list of seeds (" + std::to_string(seeds.size()) +
                    "), got " + std::to_string(question_terms.size()));
    }
    check_documents(x, seeds.values, "seed_ids");
    check_masked(x, question_terms.values);
    if (transposed.documents() != x.terms || transposed.terms != x.documents()) {
        throw Error("XT: must be X transposed, " + std::to_string(x.terms) + " x " +
                    std::to_string(x.documents()) + ", not " + std::to_string(transposed.documents()) + " x " +
                    std::to_string(transposed.terms));
    }
    if (options.k < 1 || options.max_entries < 1) {
        throw Error("k, max_entries: must be at least 1");
    }
    if (options.largest_norm && !(*options.largest_norm > 0.0f && std::isfinite(*options.largest_norm))) {
        throw Error("largest_norm: must be a finite number above 0");
    }
    const float largest_norm = options.largest_norm ? *options.largest_norm : norm_of(x, options.threads);

    const std::size_t n = seeds.values.size();
    std::vector<std::size_t> list_of(n);
    for (std::size_t q = 0; q < seeds.size(); ++q) {
        std::fill(list_of.begin() + seeds.offsets[q], list_of.begin() + seeds.offsets[q + 1], q);
    }
    const auto make = [&] {
        Reused<Workspace> space;
        if (space->weight.size() < static_cast<std::size_t>(x.terms)) {
            space->weight.resize(static_cast<std::size_t>(x.terms));
        }
        if (space->met.size() < static_cast<std::size_t>(x.documents())) {
            space->met.resize(static_cast<std::size_t>(x.documents()));
        }
        return space;
    };
    std::vector<std::vector<Neighbour>> found(n);
    parallel_for(n, options.threads, 1, make, [&](Reused<Workspace>& reused, std::size_t s) {
        find_neighbours(*reused, x, transposed, seeds.values[s], question_terms[list_of[s]], options,
                        largest_norm);
        found[s] = reused->neighbours;
    });
    RankedPools out;
    for (const std::vector<Neighbour>& neighbours : found) {
        for (const Neighbour& neighbour : neighbours) {
            out.documents.push_back(neighbour.document);
            out.scores.push_back(static_cast<float>(neighbour.similarity));
        }
        out.offsets.push_back(static_cast<std::int64_t>(out.documents.size()));
    }
    return out;
}

}  // namespace pyfast
