#include "pyfast/evidence_graph.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checked_offsets.hpp"
#include "parallel.hpp"
#include "pool_graph.hpp"
#include "pyfast/error.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

constexpr std::size_t block = 16;                   // weights that are compared together
constexpr std::size_t much = std::size_t{1} << 22;  // with more edges, each list is freed as soon as it is copied
constexpr std::size_t shared_pool = 2048;           // threads share the rows of a pool with more documents
constexpr std::size_t shared_rows = 32;             // rows that a thread takes at a time

// Edges in the order in which one thread found them. A list never grows, so its edges stay in place.
struct EdgeList {
    explicit EdgeList(std::size_t capacity) : indices(capacity), weights(capacity) {}

    Buffer<std::int32_t> indices;
    Buffer<float> weights;
    std::size_t used = 0;
    std::atomic<std::size_t> blocks{0};  // the number of its blocks that are still to be copied

    void free() {
        indices = {};
        weights = {};
        used = 0;
    }
};

struct Workspace {
    PoolGraph graph;
    std::deque<EdgeList> lists;
    std::vector<float> row;
    std::vector<std::pair<float, std::int32_t>> strongest;  // weight, document

    // A list with room for this many more edges.
    EdgeList& room(std::size_t edges) {
        constexpr std::size_t first = std::size_t{1} << 14;
        // For blocks of more than 32 MB, glibc's malloc maps pages each time, and free() returns them at once.
        constexpr std::size_t largest = (std::size_t{8} << 20) + 4096;
        if (lists.empty() || lists.back().indices.size - lists.back().used < edges) {
            const std::size_t next =
                lists.empty() ? first : std::clamp(2 * lists.back().indices.size, first, largest);
            lists.emplace_back(std::max(next, edges));
        }
        return lists.back();
    }

    void trim() {
        graph.trim();
        pyfast::trim(row);
        while (lists.size() > 1 || (!lists.empty() && lists.front().indices.size > (std::size_t{4} << 20))) {
            lists.pop_front();
        }
        if (!lists.empty()) {
            lists.front().used = 0;
            lists.front().blocks = 0;
        }
    }
};

// Appends the edges of node i: the entries of `row` above the threshold. Returns their number.
std::size_t append_all(EdgeList& list, std::span<const float> row, float threshold) {
    std::int32_t* const indices = list.indices.data.get() + list.used;
    float* const weights = list.weights.data.get() + list.used;
    std::size_t kept = 0;
    for (std::size_t j = 0; j < row.size(); ++j) {
        indices[kept] = static_cast<std::int32_t>(j);
        weights[kept] = row[j];
        kept += row[j] > threshold ? 1 : 0;
    }
    list.used += kept;
    return kept;
}

// The same for the k strongest. If weights are equal, the earlier document comes first.
std::size_t append_strongest(Workspace& space, EdgeList& list, std::span<const float> row, float threshold,
                             std::size_t k) {
    using Edge = std::pair<float, std::int32_t>;
    const auto stronger = [](const Edge& a, const Edge& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    };
    // Candidates are reduced to k when there are twice as many. Later candidates must be above the weakest of
    // these k, and few are.
    auto& strongest = space.strongest;
    strongest.resize(2 * k + block);
    std::size_t count = 0;
    float bar = threshold;
    const auto sift = [&] {
        const auto begin = strongest.begin();
        const auto weakest = begin + static_cast<std::ptrdiff_t>(k) - 1;
        std::nth_element(begin, weakest, begin + static_cast<std::ptrdiff_t>(count), stronger);
        count = k;
        bar = weakest->first;
    };
    const auto admit = [&](std::size_t first, std::size_t last) {
        for (std::size_t j = first; j < last; ++j) {
            strongest[count] = {row[j], static_cast<std::int32_t>(j)};
            count += row[j] > bar ? 1 : 0;
        }
        if (count >= 2 * k) {
            sift();
        }
    };
    std::size_t j = 0;
    for (; j + block <= row.size(); j += block) {
        unsigned above = 0;
        for (std::size_t lane = 0; lane < block; ++lane) {
            above |= row[j + lane] > bar ? 1U : 0U;
        }
        if (above != 0) {
            admit(j, j + block);
        }
    }
    admit(j, row.size());
    if (count > k) {
        sift();
    }
    const auto end = strongest.begin() + static_cast<std::ptrdiff_t>(count);
    std::sort(strongest.begin(), end, [](const Edge& a, const Edge& b) { return a.second < b.second; });
    for (auto edge = strongest.begin(); edge != end; ++edge) {
        list.weights.data[list.used] = edge->first;
        list.indices.data[list.used++] = edge->second;
    }
    return count;
}

// Some rows of a pool, and where their edges are until they are copied.
struct Block {
    std::size_t pool;
    std::size_t first;
    std::size_t last;
    EdgeList* list = nullptr;
    std::size_t begin = 0;
};

}  // namespace

Graph evidence_graph(const Forward& x, const Pools& given, const Ragged<std::int32_t>& mask_terms,
                     const EvidenceGraphOptions& options) {
    const auto offsets = checked_offsets(given.offsets, given.values.size(), "pool_offsets");
    const Pools pools{offsets, given.values};
    std::vector<std::int64_t> mask_offsets;
    if (!mask_terms.offsets.empty()) {
        mask_offsets = checked_offsets(mask_terms.offsets, mask_terms.values.size(), "mask_terms");
        if (mask_terms.size() != pools.size()) {
            throw Error("mask_terms: expected one list for each pool (" + std::to_string(pools.size()) +
                        "), got " + std::to_string(mask_terms.size()));
        }
    }
    const Ragged<std::int32_t> masked{mask_offsets, mask_terms.values};
    if (!(options.threshold >= 0.0f) || std::isinf(options.threshold)) {
        throw Error("threshold: must be a finite number of at least 0");
    }
    if (options.top_k && *options.top_k < 1) {
        throw Error("top_k: must be at least 1");
    }
    const std::size_t nodes = pools.values.size();
    Graph out;
    out.indptr = Buffer<std::int64_t>(nodes + 1);
    std::int64_t* indptr = out.indptr.data.get();
    indptr[0] = 0;

    std::mutex guard;
    std::deque<Reused<Workspace>> spaces;  // they hold the edges until these are copied
    std::vector<Workspace*> idle;
    const auto give_back = [&](Workspace* space) {
        const std::lock_guard lock(guard);
        idle.push_back(space);
    };
    using Borrowed = std::unique_ptr<Workspace, decltype(give_back)>;
    const auto borrow = [&] {
        const std::lock_guard lock(guard);
        if (idle.empty()) {
            idle.push_back(&*spaces.emplace_back());
        }
        Borrowed space(idle.back(), give_back);
        idle.pop_back();
        return space;
    };

    std::vector<Block> blocks;
    blocks.reserve(pools.size());
    std::vector<std::size_t> large;  // pools
    for (std::size_t p = 0; p < pools.size(); ++p) {
        if (pools[p].size() > shared_pool) {
            large.push_back(p);
        } else {
            blocks.push_back({p, 0, pools[p].size()});
        }
    }
    const auto prepare = [&](Workspace& space, std::size_t p) {
        const auto mask = masked.offsets.empty() ? std::span<const std::int32_t>{} : masked[p];
        space.graph.terms.gather(x, pools[p], mask, options.idf);
        space.graph.prepare(options.weight, options.function);
    };
    const auto append = [&](Workspace& space, Block& rows, const auto& row_of) {
        const std::size_t documents = pools[rows.pool].size();
        const std::size_t most =
            options.top_k ? std::min(static_cast<std::size_t>(*options.top_k), documents) : documents;
        EdgeList& list = space.room((rows.last - rows.first) * most);
        rows.list = &list;
        rows.begin = list.used;
        ++list.blocks;
        const auto first = static_cast<std::size_t>(pools.offsets[rows.pool]);
        for (std::size_t i = rows.first; i < rows.last; ++i) {
            const std::span<float> row = row_of(i);
            row[i] = -1.0f;  // below any threshold
            indptr[first + i + 1] = static_cast<std::int64_t>(
                options.top_k ? append_strongest(space, list, row, options.threshold, most)
                              : append_all(list, row, options.threshold));
        }
    };
    parallel_for(blocks.size(), options.threads, 1, borrow, [&](Borrowed& space, std::size_t b) {
        prepare(*space, blocks[b].pool);
        append(*space, blocks[b], [&](std::size_t i) { return space->graph.row(i); });
    });
    for (const std::size_t p : large) {
        const Borrowed whole = borrow();
        prepare(*whole, p);
        const std::size_t before = blocks.size();
        for (std::size_t first = 0; first < pools[p].size(); first += shared_rows) {
            blocks.push_back({p, first, std::min(first + shared_rows, pools[p].size())});
        }
        parallel_for(blocks.size() - before, options.threads, 1, borrow, [&](Borrowed& space, std::size_t b) {
            append(*space, blocks[before + b], [&](std::size_t i) { return whole->graph.row(i, space->row); });
        });
    }

    std::partial_sum(indptr, indptr + nodes + 1, indptr);
    const auto edges = static_cast<std::size_t>(indptr[nodes]);
    out.indices = Buffer<std::int32_t>(edges);
    out.weights = Buffer<float>(edges);
    parallel_for(
        blocks.size(), options.threads, 16, [] { return 0; },
        [&](int, std::size_t b) {
            const Block& rows = blocks[b];
            const auto first = static_cast<std::size_t>(pools.offsets[rows.pool]);
            const auto begin = indptr[first + rows.first];
            const auto count = static_cast<std::size_t>(indptr[first + rows.last] - begin);
            EdgeList& list = *rows.list;
            std::copy_n(list.indices.data.get() + rows.begin, count, out.indices.data.get() + begin);
            std::copy_n(list.weights.data.get() + rows.begin, count, out.weights.data.get() + begin);
            if (--list.blocks == 0 && edges > much) {
                list.free();
            }
        });
    return out;
}

}  // namespace pyfast
