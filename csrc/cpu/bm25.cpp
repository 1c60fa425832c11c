#include "pyfast/bm25.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "checked_offsets.hpp"
#include "multiversion.hpp"
#include "parallel.hpp"
#include "pyfast/error.hpp"

namespace pyfast {

namespace {

// documents that are scored together: their scores fit into the first-level cache
constexpr std::int64_t window = 8192;
constexpr std::int64_t group = 16;  // scores that are compared at once with the worst of the best

struct Found {
    float score;
    std::int32_t document;
};

bool better(const Found& a, const Found& b) {
    return a.score != b.score ? a.score > b.score : a.document < b.document;
}

// The part of BM25's denominator that depends on a document's length. A table has the values of common lengths,
// which saves a division.
class LengthNorm {
  public:
    explicit LengthNorm(const Bm25Options& options)
        : k1_(options.k1),
          b_(options.b),
          average_(options.total_length > 0 ? static_cast<double>(options.total_length) /
                                                  static_cast<double>(std::max<std::int64_t>(options.documents, 1))
                                            : 1.0) {
        for (std::size_t length = 0; length < table_.size(); ++length) {
            table_[length] = of(static_cast<double>(length));
        }
    }
    [[nodiscard]] double operator[](std::int32_t length) const {
        const auto place = static_cast<std::uint32_t>(length);
        return place < table_.size() ? table_[place] : of(static_cast<double>(length));
    }

  private:
    [[nodiscard]] double of(double length) const { return k1_ * (1.0 - b_ + b_ * length / average_); }

    double k1_, b_, average_;
    std::array<double, 1024> table_{};
};

// The entries of a query's term in one part.
struct Column {
    const std::int32_t* documents;
    const std::int32_t* counts;  // exactly one of these two is set
    const std::uint8_t* small_counts;
    std::int64_t begin;  // the entries of the window
    std::int64_t next;
    std::int64_t end;
    double idf;

    [[nodiscard]] std::int64_t size() const { return next - begin; }
    [[nodiscard]] std::int32_t count(std::int64_t entry) const {
        return counts != nullptr ? counts[entry] : small_counts[entry];
    }

    // The largest count in the window.
    [[nodiscard]] std::int32_t largest_count() const {
        const auto largest_of = [&](auto largest, const auto* all) {
            for (std::int64_t e = begin; e < next; ++e) {
                largest = std::max(largest, all[e]);
            }
            return static_cast<std::int32_t>(largest);
        };
        return counts != nullptr ? largest_of(std::int32_t{0}, counts) : largest_of(std::uint8_t{0}, small_counts);
    }

    // Goes on to the entries below document `stop`. The `last` window has all entries that are left.
    void advance(std::int64_t stop, bool last) {
        begin = next;
        next = last ? end : before(stop);
    }

    // The end of the entries below `document`. It tries large steps first, because most columns are long or
    // sparse.
    [[nodiscard]] std::int64_t before(std::int64_t document) const {
        std::int64_t low = next, step = 1;
        while (low + step < end && documents[low + step] < document) {
            low += step;
            step *= 2;
        }
        const std::int32_t* const last = documents + std::min(low + step + 1, end);
        return std::lower_bound(documents + low, last, document,
                                [](std::int32_t d, std::int64_t limit) { return d < limit; }) -
               documents;
    }
};

// Replaces a heap's top, the worst of the best, by a better document. This is faster than a pop and a push.
void replace_worst(std::vector<Found>& best, const Found& found) {
    std::size_t hole = 0;
    for (std::size_t child = 1; child < best.size(); child = 2 * hole + 1) {
        child += child + 1 < best.size() && better(best[child], best[child + 1]) ? 1 : 0;
        if (!better(found, best[child])) {
            break;
        }
        best[hole] = best[child];
        hole = child;
    }
    best[hole] = found;
}

struct Workspace {
    std::array<float, window> scores{};  // 0 between windows
    std::vector<Column> columns;
    std::vector<double> idf;        // of each term of the query
    std::vector<Found> best;        // a heap; its top is the worst of the best
    std::vector<Column*> rarest;    // the columns by descending idf, if pruning can pay off
    std::vector<Found> candidates;  // of a window; their documents are counted from its first one
};

[[noreturn]] void malformed(std::size_t part) {
    throw Error("parts[" + std::to_string(part) +
                "]: documents must ascend within a column and lie inside the part, counts must be at least 1, and "
                "lengths at least 0");
}

// The column of a term; -1: the part has none.
std::int64_t column_of(const TermCounts& part, std::int32_t term, std::size_t number) {
    const auto columns = static_cast<std::int64_t>(part.indptr.size()) - 1;
    std::int64_t column = term;
    if (!part.columns.empty()) {
        column = static_cast<std::size_t>(term) < part.columns.size()
                     ? part.columns[static_cast<std::size_t>(term)]
                     : -1;
    }
    if (term < 0 || column < -1 || (!part.columns.empty() && column >= columns)) {
        throw Error("query_terms, parts[" + std::to_string(number) + "].columns: term " + std::to_string(term) +
                    " is in column " + std::to_string(column) + "; number of columns: " + std::to_string(columns));
    }
    return column < columns ? column : -1;
}

std::span<const std::int32_t> documents_of(const TermCounts& part, std::int64_t column) {
    return checked_list<std::int32_t>({part.indptr, part.documents}, column, "indptr");
}

// The number of documents that have the term and are not deleted.
std::int64_t frequency(std::span<const TermCounts> parts, std::int32_t term) {
    std::int64_t count = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::int64_t column = column_of(parts[p], term, p);
        if (column < 0) {
            continue;
        }
        const auto documents = documents_of(parts[p], column);
        count += std::ssize(documents);
        if (!parts[p].deleted.empty()) {
            for (const std::int32_t document : documents) {
                if (static_cast<std::size_t>(document) >= parts[p].deleted.size()) {
                    malformed(p);
                }
                count -= parts[p].deleted[static_cast<std::size_t>(document)] != 0 ? 1 : 0;
            }
        }
    }
    return count;
}

// The share of one entry in the score of its document.
float share_of(double idf, std::int32_t count, std::int32_t length, const LengthNorm& norm) {
    const auto tf = static_cast<double>(count);
    return static_cast<float>(idf * (tf / (norm[length] + tf)));
}

// Adds the shares of a column's entries in the window that begins with document `first`.
template <class Count>
void add_scores(Workspace& space, const Column& column, const Count* counts, std::int64_t first,
                const TermCounts& part, std::size_t number, const LengthNorm& norm) {
    bool spoilt = false;
    const std::int64_t most = std::min(window, std::ssize(part.lengths) - first);
    for (std::int64_t e = column.begin; e < column.next; ++e) {
        // The lengths of millions of documents do not fit into the cache. Prefetching any address is harmless.
        __builtin_prefetch(part.lengths.data() + column.documents[std::min(e + 32, column.end - 1)]);
        const std::int64_t place = column.documents[e] - first;
        if (place < 0 || place >= most) {
            malformed(number);
        }
        const std::int32_t count = counts[e];
        const std::int32_t length = part.lengths[static_cast<std::size_t>(first + place)];
        spoilt = spoilt || count < 1 || length < 0;
        space.scores[static_cast<std::size_t>(place)] += share_of(column.idf, count, length, norm);
    }
    if (spoilt) {
        malformed(number);
    }
}

// The first group from `g` on that has a score above the bar, or `size`.
PYFAST_MULTIVERSION std::int64_t next_group(const float* scores, std::int64_t g, std::int64_t size, float bar) {
    using Floats [[gnu::vector_size(group * sizeof(float))]] = float;
    for (; g < size; g += group) {
        Floats some;
        std::memcpy(&some, scores + g, sizeof some);
        const auto above = some > bar;
        std::array<std::uint64_t, group / 2> words;
        std::memcpy(words.data(), &above, sizeof words);
        std::uint64_t any = 0;
        for (const std::uint64_t word : words) {
            any |= word;
        }
        if (any != 0) {
            return g;
        }
    }
    return size;
}

struct Search {
    std::span<const TermCounts> parts;
    const Bm25Options& options;
    const LengthNorm& norm;

    void consider(Workspace& space, std::size_t part, std::int64_t base, std::int64_t document,
                  float score) const {
        const auto deleted = parts[part].deleted;
        if (!deleted.empty() && deleted[static_cast<std::size_t>(document)] != 0) {
            return;
        }
        const Found found{score, static_cast<std::int32_t>(base + document)};
        if (std::ssize(space.best) < options.k) {
            space.best.push_back(found);
            std::push_heap(space.best.begin(), space.best.end(), better);
        } else {
            replace_worst(space.best, found);
        }
    }

    // A score must be above this to enter the best. So among equal scores, the earlier documents stay.
    [[nodiscard]] float bar(const Workspace& space) const {
        return std::ssize(space.best) < options.k ? 0.0f : space.best.front().score;
    }

    void take_best(Workspace& space, std::size_t part, std::int64_t base, std::int64_t first,
                   std::int64_t size) const {
        const float* const scores = space.scores.data();
        for (std::int64_t g = 0; (g = next_group(scores, g, size, bar(space))) < size; g += group) {
            for (std::int64_t i = g; i < g + group; ++i) {
                if (scores[i] > bar(space)) {
                    consider(space, part, base, first + i, scores[i]);
                }
            }
        }
    }

    void add(Workspace& space, const Column& column, std::size_t p, std::int64_t first) const {
        const auto add_all = [&](const auto* counts) {
            add_scores(space, column, counts, first, parts[p], p, norm);
        };
        column.counts != nullptr ? add_all(column.counts) : add_all(column.small_counts);
    }

    // The bar, lowered by what rounding can add to a sum of shares.
    [[nodiscard]] double safe_bar(const Workspace& space) const {
        return bar(space) / (1.0 + static_cast<double>(space.columns.size() + 4) * 0x1p-23);
    }

    // How many of the rarest columns are needed: a document that is in none of them cannot enter the best, because
    // a share is at most the idf.
    [[nodiscard]] std::size_t needed(const Workspace& space) const {
        std::size_t count = space.rarest.size();
        double rest = 0.0;
        while (count > 0 && rest + space.rarest[count - 1]->idf <= safe_bar(space)) {
            --count;
            rest += space.rarest[count]->idf;
        }
        return count;
    }

    [[nodiscard]] bool pruning_pays(const Workspace& space) const {
        std::int64_t all = 0, rare = 0;
        for (const Column& column : space.columns) {
            all += column.end - column.next;
        }
        for (std::size_t c = 0, count = needed(space); c < count; ++c) {
            rare += space.rarest[c]->end - space.rarest[c]->next;
        }
        return 2 * rare + options.prune_from < all;
    }

    // The share of a column in the score of a document of the window. The search has no branch that depends on the
    // data, because processors would mispredict it.
    [[nodiscard]] float look_up(const Column& column, std::size_t p, std::int64_t document) const {
        const std::int32_t* at = column.documents + column.begin;
        for (std::int64_t left = column.size(); left > 1;) {
            const std::int64_t half = left / 2;
            at = at[half] <= document ? at + half : at;
            left -= half;
        }
        if (column.size() == 0 || *at != document) {
            return 0.0f;
        }
        const std::int32_t count = column.count(at - column.documents);
        const std::int32_t length = parts[p].lengths[static_cast<std::size_t>(document)];
        if (count < 1 || length < 0) {
            malformed(p);
        }
        return share_of(column.idf, count, length, norm);
    }

    // Copies the scores of the window that `can_enter` accepts to the candidates, and clears the window. Each
    // score is written there, and overwritten by the next one if it is not accepted, because a branch would be
    // mispredicted.
    template <class CanEnter>
    void take_candidates(Workspace& space, std::size_t count, std::int64_t first,
                         const CanEnter& can_enter) const {
        std::size_t taken = 0;
        for (std::size_t c = 0; c < count; ++c) {
            const Column& column = *space.rarest[c];
            space.candidates.resize(
                std::max(space.candidates.size(), taken + static_cast<std::size_t>(column.size())));
            for (std::int64_t e = column.begin; e < column.next; ++e) {
                const auto place = static_cast<std::int32_t>(column.documents[e] - first);
                float& score = space.scores[static_cast<std::size_t>(place)];
                space.candidates[taken] = {score, place};
                taken += can_enter(space.candidates[taken]) ? 1 : 0;
                score = 0.0f;
            }
        }
        space.candidates.resize(taken);
    }

    // Scores a window by the first `count` of the rarest columns. Looks up the other columns only for documents
    // that can still enter the best. The documents that are left get their scores in the order of the query's
    // terms, so pruning changes no bit.
    void prune_window(Workspace& space, std::size_t p, std::int64_t base, std::int64_t first, std::int64_t size,
                      std::size_t count) const {
        for (std::size_t c = 0; c < count; ++c) {
            add(space, *space.rarest[c], p, first);
        }
        double rest = 0.0;  // summed as in `needed`, so a document without a score is never a candidate
        std::int32_t largest = 1;
        for (std::size_t c = space.rarest.size(); c > count; --c) {
            Column& column = *space.rarest[c - 1];
            column.next = column.before(first);
            column.advance(first + size, false);
            rest += column.idf;
            largest = std::max(largest, column.largest_count());
        }
        const auto tf = static_cast<double>(largest);
        const double limit = safe_bar(space);
        const auto can_enter = [&](const Found& candidate) {
            const std::int32_t length = parts[p].lengths[static_cast<std::size_t>(first + candidate.document)];
            return (limit - candidate.score) * (norm[length] + tf) < rest * tf;
        };
        take_candidates(space, count, first, can_enter);
        for (std::size_t c = count; c < space.rarest.size() && !space.candidates.empty(); ++c) {
            const Column& column = *space.rarest[c];
            rest -= column.idf;
            for (Found& candidate : space.candidates) {
                candidate.score += look_up(column, p, first + candidate.document);
            }
            std::erase_if(space.candidates, std::not_fn(can_enter));
        }
        std::sort(space.candidates.begin(), space.candidates.end(),
                  [](const Found& a, const Found& b) { return a.document < b.document; });
        for (const Found& candidate : space.candidates) {
            const std::int64_t document = first + candidate.document;
            float score = 0.0f;
            for (const Column& column : space.columns) {
                score += look_up(column, p, document);
            }
            if (score > bar(space)) {
                consider(space, p, base, document, score);
            }
        }
    }

    // Finds the best of the documents from `first` on. It skips documents that are in none of the needed columns.
    void prune(Workspace& space, std::size_t p, std::int64_t base, std::int64_t first) const {
        const auto documents = std::ssize(parts[p].lengths);
        while (true) {
            const std::size_t count = needed(space);
            std::int64_t nearest = documents;
            for (std::size_t c = 0; c < count; ++c) {
                const Column& column = *space.rarest[c];
                if (column.next < column.end) {
                    nearest = std::min<std::int64_t>(nearest, column.documents[column.next]);
                }
            }
            if (nearest < first) {
                malformed(p);
            }
            if (nearest >= documents) {
                return;
            }
            first = nearest;
            const std::int64_t size = std::min(window, documents - first);
            for (std::size_t c = 0; c < count; ++c) {
                space.rarest[c]->advance(first + size, first + size == documents);
            }
            prune_window(space, p, base, first, size, count);
            first += size;
        }
    }

    // Searches a part, whose first document is number `base`, for the best. If `allowed` is given, only its
    // documents count.
    void part(Workspace& space, std::size_t p, std::int64_t base, std::span<const std::int32_t> query,
              const std::span<const std::int32_t>* allowed) const {
        const TermCounts& part = parts[p];
        const auto documents = std::ssize(part.lengths);
        space.columns.clear();
        std::int64_t all = 0;
        for (std::size_t t = 0; t < query.size(); ++t) {
            const std::int64_t column = column_of(part, query[t], p);
            if (column >= 0 && space.idf[t] > 0.0) {
                const auto entries = documents_of(part, column);
                const auto offset = static_cast<std::size_t>(entries.data() - part.documents.data());
                const bool small = part.counts.empty();
                space.columns.push_back({entries.data(), small ? nullptr : part.counts.data() + offset,
                                         small ? part.small_counts.data() + offset : nullptr, 0, 0,
                                         std::ssize(entries), space.idf[t]});
                all += std::ssize(entries);
            }
        }
        space.rarest.clear();
        if (all > options.prune_from && allowed == nullptr) {
            for (Column& column : space.columns) {
                space.rarest.push_back(&column);
            }
            std::stable_sort(space.rarest.begin(), space.rarest.end(),
                             [](const Column* a, const Column* b) { return a->idf > b->idf; });
        }
        const std::int32_t* wanted = nullptr;
        const std::int32_t* wanted_end = nullptr;
        if (allowed != nullptr) {
            const auto place = [&](std::int64_t document) {
                return std::lower_bound(allowed->begin(), allowed->end(), document,
                                        [](std::int32_t d, std::int64_t limit) { return d < limit; });
            };
            wanted = std::to_address(place(base));
            wanted_end = std::to_address(place(base + documents));
        }
        for (std::int64_t first = 0; first < documents && !space.columns.empty(); first += window) {
            if (!space.rarest.empty() && pruning_pays(space)) {
                prune(space, p, base, first);
                return;
            }
            const std::int64_t size = std::min(window, documents - first);
            const bool last = first + size == documents;
            const std::int32_t* stop = wanted;
            while (stop != wanted_end && *stop < base + first + size) {
                ++stop;
            }
            const bool skipped = allowed != nullptr && stop == wanted;
            bool any = false;
            for (Column& column : space.columns) {
                column.advance(first + size, last);
                any = any || column.size() > 0;
                if (!skipped) {
                    add(space, column, p, first);
                }
            }
            if (any && !skipped) {
                if (allowed == nullptr) {
                    take_best(space, p, base, first, size);
                } else {
                    for (const std::int32_t* document = wanted; document != stop; ++document) {
                        const std::int64_t place = *document - base - first;
                        const float score = place < 0 ? 0.0f : space.scores[static_cast<std::size_t>(place)];
                        if (score > bar(space)) {
                            consider(space, p, base, first + place, score);
                        }
                    }
                }
                std::fill_n(space.scores.begin(), (size + group - 1) / group * group, 0.0f);
            }
            wanted = stop;
        }
    }

    void query(Workspace& space, std::span<const std::int32_t> query,
               const std::span<const std::int32_t>* allowed) const {
        space.idf.clear();
        space.best.clear();
        for (const std::int32_t term : query) {
            const std::int64_t df = frequency(parts, term);
            if (df > options.documents) {
                throw Error("documents: is " + std::to_string(options.documents) + ", but term " +
                            std::to_string(term) + " is in " + std::to_string(df) + " documents");
            }
            const auto found = static_cast<double>(df), all = static_cast<double>(options.documents);
            space.idf.push_back(df == 0 ? 0.0 : std::log(1.0 + (all - found + 0.5) / (found + 0.5)));
        }
        std::int64_t base = 0;
        for (std::size_t p = 0; p < parts.size(); ++p) {
            part(space, p, base, query, allowed);
            base += std::ssize(parts[p].lengths);
        }
        std::sort_heap(space.best.begin(), space.best.end(), better);
    }
};

// The number of documents, including deleted ones.
std::int64_t check_parts(std::span<const TermCounts> parts) {
    std::int64_t documents = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const TermCounts& part = parts[p];
        const std::string name = "parts[" + std::to_string(p) + "]";
        if (part.indptr.empty() || part.documents.size() != part.counts.size() + part.small_counts.size() ||
            (!part.counts.empty() && !part.small_counts.empty())) {
            throw Error(name +
                        ": indptr must hold one more number than there are columns; documents and counts "
                        "must have the same length");
        }
        if (!part.deleted.empty() && part.deleted.size() != part.lengths.size()) {
            throw Error(name + ".deleted: must hold one number for each of " +
                        std::to_string(part.lengths.size()) + " documents");
        }
        documents += std::ssize(part.lengths);
    }
    if (documents > std::numeric_limits<std::int32_t>::max()) {
        throw Error("parts: expected at most 2147483647 documents, got " + std::to_string(documents));
    }
    return documents;
}

void check_options(const Bm25Options& options, std::size_t queries) {
    if (options.k < 1) {
        throw Error("k: must be at least 1");
    }
    if (!(options.k1 >= 0.0 && std::isfinite(options.k1))) {
        throw Error("k1: must be a finite number of at least 0");
    }
    if (!(options.b >= 0.0 && options.b <= 1.0)) {
        throw Error("b: must be between 0 and 1");
    }
    if (options.documents < 0 || options.total_length < 0 || options.prune_from < 0) {
        throw Error("documents, total_length, prune_from: must be at least 0");
    }
    for (const auto sizes : {options.query_documents, options.query_lengths}) {
        if (sizes.size() != (options.query_documents.empty() ? 0 : queries)) {
            throw Error("documents, total_length: expected one number for each of " + std::to_string(queries) +
                        " queries, or one for all");
        }
        if (std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; })) {
            throw Error("documents, total_length: must be at least 0");
        }
    }
}

}  // namespace

RankedPools bm25(std::span<const TermCounts> parts, const Ragged<std::int32_t>& given,
                 const std::optional<Ragged<std::int32_t>>& allowed, const Bm25Options& options) {
    const auto query_offsets = checked_offsets(given.offsets, given.values.size(), "query_offsets");
    const Ragged<std::int32_t> queries{query_offsets, given.values};
    const std::int64_t documents = check_parts(parts);
    check_options(options, queries.size());
    std::vector<std::int64_t> filter_offsets;
    Ragged<std::int32_t> filter;
    if (allowed) {
        filter_offsets = checked_offsets(allowed->offsets, allowed->values.size(), "filter");
        filter = {filter_offsets, allowed->values};
        if (filter.size() != queries.size() && filter.size() != 1) {
            throw Error("filter: expected one list for each query (" + std::to_string(queries.size()) +
                        "), or one for all, got " + std::to_string(filter.size()));
        }
        for (std::size_t f = 0; f < filter.size(); ++f) {
            const auto list = filter[f];
            if (std::adjacent_find(list.begin(), list.end(), std::greater_equal{}) != list.end() ||
                (!list.empty() && (list.front() < 0 || list.back() >= documents))) {
                throw Error("filter: the documents of list " + std::to_string(f) +
                            " must ascend, from 0 to below " + std::to_string(documents));
            }
        }
    }
    const LengthNorm norm(options);
    const Search search{parts, options, norm};
    std::vector<std::vector<Found>> found(queries.size());
    parallel_for(
        queries.size(), options.threads, 1, [] { return std::make_unique<Workspace>(); },
        [&](std::unique_ptr<Workspace>& space, std::size_t q) {
            std::span<const std::int32_t> list;
            if (allowed) {
                list = filter[filter.size() == 1 ? 0 : q];
            }
            if (options.query_documents.empty()) {
                search.query(*space, queries[q], allowed ? &list : nullptr);
            } else {
                Bm25Options own = options;
                own.documents = options.query_documents[q];
                own.total_length = options.query_lengths[q];
                const LengthNorm own_norm(own);
                Search{parts, own, own_norm}.query(*space, queries[q], allowed ? &list : nullptr);
            }
            found[q] = space->best;
        });
    RankedPools out;
    for (const std::vector<Found>& best : found) {
        for (const auto& [score, document] : best) {
            out.documents.push_back(document);
            out.scores.push_back(score);
        }
        out.offsets.push_back(static_cast<std::int64_t>(out.documents.size()));
    }
    return out;
}

}  // namespace pyfast
