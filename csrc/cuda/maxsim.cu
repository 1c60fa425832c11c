#include <algorithm>
#include <cmath>
#include <type_traits>

#include "maxsim_tiles.cuh"
#include "pools.cuh"
#include "pyfast/cuda/maxsim.hpp"
#include "pyfast/error.hpp"

namespace pyfast::cuda {

namespace {

constexpr int threads = 128;
constexpr std::int64_t most_dimensions = 65536;
constexpr std::int64_t most_tokens = 1 << 26;  // the limit for each document, and for all queries together

struct Workspace {
    std::int8_t* codes;  // [query tokens, code_width]
};

// The bytes of a query token's codes in the workspace, rounded up to whole pieces.
std::size_t code_width(std::size_t dimensions) {
    return (dimensions + piece_bytes - 1) / piece_bytes * piece_bytes;
}

Workspace arrays(Arena& arena, std::size_t query_tokens, std::size_t dimensions) {
    return {arena.take<std::int8_t>(query_tokens * code_width(dimensions))};
}

// Checks everything except the vectors and scales of documents: the pairs, the offsets of their documents, and
// those of all queries.
__device__ void check_pairs(const RaggedArrays<float>& queries, const RaggedArrays<float>& documents,
                            const std::int64_t* pairs, std::int64_t n, std::int32_t* status) {
    for (std::int64_t q = thread_of_grid(); q < queries.lists; q += threads_of_grid()) {
        if (!offsets_hold(queries, q)) {
            report(status, Fault::offsets);
        }
    }
    for (std::int64_t p = thread_of_grid(); p < n; p += threads_of_grid()) {
        const std::int64_t query = pairs[2 * p];
        const std::int64_t document = pairs[2 * p + 1];
        if (query < 0 || query >= queries.lists || document < 0 || document >= documents.lists) {
            report(status, Fault::pairs);
            continue;
        }
        const std::int64_t first = documents.offsets[document];
        const std::int64_t last = documents.offsets[document + 1];
        if (first < 0 || last < first || last > documents.size || last - first > most_tokens) {
            report(status, Fault::offsets);
        }
    }
}

// For a warp: checks a token of a query, and with codes rounds it as `maxsim_rows::round` does.
__device__ void round_token(const float* token, std::int64_t dimensions, std::int8_t* codes, int width,
                            std::int32_t* status) {
    float most = 0.0f;
    int finite = 1;
    for (std::int64_t d = 2 * lane_of_thread(); d < dimensions; d += 2 * lanes) {
        const float a = 0.5f * token[d];
        const float b = d + 1 < dimensions ? 0.5f * token[d + 1] : 0.0f;
        finite = finite != 0 && isfinite(a) && isfinite(b) ? 1 : 0;
        most = fmaxf(most, fmaxf(fmaxf(a, 0.0f) + fmaxf(b, 0.0f), fmaxf(-a, 0.0f) + fmaxf(-b, 0.0f)));
    }
    if (finite == 0) {
        report(status, Fault::scores);
    }
    if (codes == nullptr) {
        return;
    }
    most = warp_max(most);
    const float scale = most > 1e-36f && isfinite(most) ? 63.5f / most : 0.0f;
    for (int d = lane_of_thread(); d < width; d += lanes) {
        const float number = d < dimensions && isfinite(token[d]) ? token[d] * scale : 0.0f;
        codes[d] = static_cast<std::int8_t>(number < 0.0f ? number - 0.5f : number + 0.5f);
    }
}

// Checks the pairs and offsets, from which the next kernel computes addresses, and the queries. With codes, it
// also rounds the queries.
__global__ void prepare_maxsim_kernel(RaggedArrays<float> queries, RaggedArrays<float> documents,
                                      std::int64_t dimensions, const std::int64_t* pairs, std::int64_t n,
                                      std::int8_t* codes, int width, std::int32_t* status) {
    check_pairs(queries, documents, pairs, n, status);
    for (std::int64_t t = warp_of_grid(); t < queries.size; t += warps_of_grid()) {
        round_token(queries.values + t * dimensions, dimensions, codes == nullptr ? nullptr : codes + t * width,
                    width, status);
    }
}

constexpr int most_documents = 8;  // the most that a block takes at a time
constexpr int most_queries = 31;
constexpr unsigned nothing = 0xFFFFFFFFU;  // stands for no token

// Vectors in global memory, each `bytes` long.
struct Vectors {
    const unsigned char* first;
    unsigned bytes;
    bool whole_pieces;  // all pieces are aligned, and none goes beyond its vector
};

struct Problem {
    RaggedArrays<float> queries;
    RaggedArrays<float> documents;
    Vectors of_queries;    // numbers, or codes
    Vectors of_documents;  // the same; for codes the vectors may be shorter than those of the queries
    // Only with codes: the scales of the documents, the queries' unrounded numbers, and whether these are aligned
    // to pieces.
    const float* scales;
    const float* numbers;
    bool aligned;
    std::int64_t dimensions;
    // A matrix of pairs, row after row or column after column. A block takes a part of it, with `part_rows` rows
    // and `part_columns` columns. If each row of the part is of one query and each column of one document, the
    // block multiplies all with all. Otherwise it takes the rows one after the other, in runs of the same query.
    const std::int64_t* pairs;
    std::int64_t rows;
    std::int64_t columns;
    int part_rows;
    int part_columns;
    float* scores;
    std::int32_t* status;
};

// Some queries or documents, one behind the other: where each begins among the tokens of all of them, and which
// token is its first in memory.
template <int most>
struct Chain {
    int count;
    int begin[most + 1];
    unsigned first[most];

    [[nodiscard]] __device__ int tokens() const { return begin[count]; }
    [[nodiscard]] __device__ bool empty(int list) const { return begin[list] == begin[list + 1]; }

    // For a warp: adds the lists in order. `list` is the number of a list, one in each of the first `count_`
    // lanes.
    __device__ void make(const RaggedArrays<float>& lists, std::int64_t list, int count_) {
        const int lane = lane_of_thread();
        const std::int64_t from = lists.offsets[list];
        int end = lane < count_ ? static_cast<int>(lists.offsets[list + 1] - from) : 0;
        for (int distance = 1; distance < lanes; distance *= 2) {
            const int before = __shfl_up_sync(all_lanes, end, distance);
            end += lane >= distance ? before : 0;
        }
        if (lane < count_) {
            first[lane] = static_cast<unsigned>(from);
            begin[lane + 1] = end;
        }
        if (lane == 0) {
            begin[0] = 0;
            count = count_;
        }
    }
    // The token at a place, or `nothing` behind the last.
    [[nodiscard]] __device__ unsigned token(int place) const {
        if (place >= tokens()) {
            return nothing;
        }
        int list = 0;
        while (place >= begin[list + 1]) {
            ++list;
        }
        return first[list] + static_cast<unsigned>(place - begin[list]);
    }
};

// The shared memory of a block.
template <class Products, class Tile>
struct Shared {
    static constexpr int stages = Products::stages;  // one is used while the others are copied
    unsigned char stage[stages][(Tile::rows + Tile::columns) * Products::step_bytes];
    // For the columns of each warp: the largest product of each query token with each document. At first, it is
    // stored as a key, and then as the bits of the number.
    typename Products::Key best[Tile::column_warps][most_documents][Tile::rows + 1];
    double total[Tile::threads];  // for each query and document
    float scales[Tile::threads / lanes][warp_columns];
    // The tokens that are rows and columns of the tile. Copies are ahead of the work by less than `stages` tiles,
    // and the tokens by one more.
    unsigned row_tokens[Tile::rows];
    unsigned column_tokens[stages + 1][Tile::columns];
    Chain<most_queries> asked;
    Chain<most_documents> read;
    // The part of the pairs, and its first row and column that are in progress.
    std::int64_t first_row;
    std::int64_t first_column;
    int rows;
    int columns;
    int row;
    int column;
    bool by_columns;
};

// Copies a piece, which may be unaligned, or go beyond the end of its vector.
template <class Number>
__device__ inline void copy_numbers(const unsigned char* vector, unsigned byte, unsigned bytes,
                                    unsigned char* to) {
#pragma unroll 1
    for (unsigned b = 0; b < piece_bytes; b += sizeof(Number)) {
        *reinterpret_cast<Number*>(to + b) =
            byte + b < bytes ? *reinterpret_cast<const Number*>(vector + byte + b) : Number{};
    }
}

// For a block: copies a step of vectors into shared memory.
template <class Products, int count, int threads>
__device__ inline void copy_step(const Vectors& vectors, const unsigned* tokens, unsigned step,
                                 unsigned char* to) {
    constexpr int pieces = Products::step_bytes / piece_bytes;
    static_assert(count * pieces % threads == 0 && threads % pieces == 0);
    const unsigned piece = threadIdx.x % pieces;
    const unsigned byte = step * Products::step_bytes + piece * piece_bytes;
    if (vectors.whole_pieces) {
        const bool inside = byte < vectors.bytes;
        const unsigned char* const first = vectors.first + (inside ? byte : 0);
#pragma unroll 4
        for (unsigned i = 0; i < count * pieces; i += threads) {
            const unsigned vector = (threadIdx.x + i) / pieces;
            const unsigned token = tokens[vector];
            const bool there = inside && token != nothing;
            copy_16_bytes(to + place_of<Products::step_bytes>(vector, piece),
                          first + static_cast<std::uint64_t>(there ? token : 0) * vectors.bytes, there);
        }
        return;
    }
#pragma unroll 1
    for (unsigned vector = threadIdx.x / pieces; vector < count; vector += threads / pieces) {
        const unsigned token = tokens[vector];
        copy_numbers<typename Products::Number>(vectors.first + static_cast<std::uint64_t>(token) * vectors.bytes,
                                                byte, token == nothing ? 0 : vectors.bytes,
                                                to + place_of<Products::step_bytes>(vector, piece));
    }
}

// Float32: the key of the largest sum of each row in the columns `low` to `high`, or the largest key if one of
// these sums is not finite. Codes: the key of the largest sum after it is multiplied by its column's scale; among
// equal ones, the key of the first. The document begins in column `low`.
template <class Products>
__device__ inline void largest(const float (&sums)[Products::rows][Products::columns], const float*, int low,
                               int high, unsigned (&keys)[Products::rows]) {
    float most[Products::rows];
    float poison[Products::rows];
#pragma unroll
    for (int i = 0; i < Products::rows; ++i) {
        most[i] = -INFINITY;
        poison[i] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < Products::columns; ++j) {
        if (Products::column(j) >= low && Products::column(j) < high) {
#pragma unroll
            for (int i = 0; i < Products::rows; ++i) {
                most[i] = fmaxf(most[i], sums[i][j]);
                poison[i] += sums[i][j] * 0.0f;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < Products::rows; ++i) {
        keys[i] = key_of(most[i] + poison[i]);
    }
}
template <class Products>
__device__ inline void largest(const int (&sums)[Products::rows][Products::columns], const float* scales, int low,
                               int high, unsigned long long (&keys)[Products::rows]) {
    float most[Products::rows];
    unsigned token[Products::rows];
#pragma unroll
    for (int i = 0; i < Products::rows; ++i) {
        most[i] = -INFINITY;
        token[i] = 0;
    }
#pragma unroll
    for (int j = 0; j < Products::columns; ++j) {
        const int column = Products::column(j);
        const float scale = column >= low && column < high ? scales[column] : NAN;
#pragma unroll
        for (int i = 0; i < Products::rows; ++i) {
            const float product = static_cast<float>(sums[i][j]) * scale;
            if (product > most[i]) {
                most[i] = product;
                token[i] = static_cast<unsigned>(column - low);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < Products::rows; ++i) {
        // -0 and 0 are equal, but their keys are not.
        keys[i] = static_cast<unsigned long long>(key_of(most[i] + 0.0f)) << 32 | (0xFFFFFFFFU - token[i]);
    }
}

// The work of a block on some queries and documents, each query with each document.
template <class Products, class Tile>
struct Job {
    static constexpr bool coded = std::is_same_v<typename Products::Number, std::int8_t>;
    using Key = typename Products::Key;
    static constexpr int stages = Products::stages;
    static constexpr int step_bytes = Products::step_bytes;
    using Sums = typename Products::Sum[Products::rows][Products::columns];

    const Problem& problem;
    Shared<Products, Tile>& shared;

    // The part of the tile that the warp works on: its first row and its first column. In other blocks, another
    // warp has it, so that all schedulers of a multiprocessor have work where tiles are not full.
    __device__ static int part() {
        return static_cast<int>((threadIdx.x / lanes + blockIdx.x) % (Tile::row_warps * Tile::column_warps));
    }
    __device__ static int first_row() { return part() / Tile::column_warps * warp_rows; }
    __device__ static int first_column() { return part() % Tile::column_warps * warp_columns; }

    // Adds up the products of each query with each document.
    __device__ void run() {
        shared.total[threadIdx.x] = 0.0;
        for (int row = 0; row < shared.asked.tokens() && shared.read.tokens() > 0; row += Tile::rows) {
            find_best(row);
            settle(row);
            add_total(row);
            __syncthreads();
        }
    }

    // The thread's score.
    [[nodiscard]] __device__ float score(int query, int document) const {
        if (shared.read.empty(document)) {
            return shared.asked.empty(query) ? 0.0f : -INFINITY;
        }
        const auto score = static_cast<float>(shared.total[threadIdx.x]);
        if (!isfinite(score)) {
            report(problem.status, Fault::scores);
        }
        return score;
    }

    // The tokens of one tile's columns.
    __device__ void find_columns(int tile) {
        for (int c = static_cast<int>(threadIdx.x); c < Tile::columns; c += Tile::threads) {
            shared.column_tokens[tile % (stages + 1)][c] = shared.read.token(tile * Tile::columns + c);
        }
    }

    // Copies a step of a tile to a stage. Steps beyond the last one are those of the next tiles.
    __device__ void copy(int tile, int step, int steps, int stage) {
        for (; step >= steps; step -= steps) {
            ++tile;
        }
        if (tile * Tile::columns < shared.read.tokens()) {
            if (step == 0) {
                find_columns(tile + 1);
            }
            unsigned char* const to = shared.stage[stage];
            copy_step<Products, Tile::rows, Tile::threads>(problem.of_queries, shared.row_tokens, step, to);
            copy_step<Products, Tile::columns, Tile::threads>(problem.of_documents,
                                                              shared.column_tokens[tile % (stages + 1)], step,
                                                              to + Tile::rows * step_bytes);
        }
        commit_copies();
    }

    // The largest products of the rows from `row` on.
    __device__ void find_best(int row) {
        const int steps = static_cast<int>((problem.of_queries.bytes + step_bytes - 1) / step_bytes);
        for (int i = static_cast<int>(threadIdx.x); i < most_documents * Tile::rows; i += Tile::threads) {
#pragma unroll
            for (int w = 0; w < Tile::column_warps; ++w) {
                shared.best[w][i / Tile::rows][i % Tile::rows] = 0;
            }
        }
        for (int r = static_cast<int>(threadIdx.x); r < Tile::rows; r += Tile::threads) {
            shared.row_tokens[r] = shared.asked.token(row + r);
        }
        find_columns(0);
        for (int i = 0; i < stages - 1; ++i) {
            __syncthreads();
            copy(0, i, steps, i);
        }
        int stage = 0;
        for (int tile = 0; tile * Tile::columns < shared.read.tokens(); ++tile) {
            const int column = tile * Tile::columns + first_column();
            const bool busy = row + first_row() < shared.asked.tokens() && column < shared.read.tokens();
            Sums sums = {};
            float scales[2] = {};
            for (int step = 0; step < steps; ++step) {
                wait_for_copies<stages - 2>();
                __syncthreads();
                copy(tile, step + stages - 1, steps, stage == 0 ? stages - 1 : stage - 1);
                if (coded && step == 0) {
                    read_scales(tile, scales);
                }
                if (busy) {
                    const unsigned at = stage * sizeof shared.stage[0];
                    Products::add(&shared.stage[0][0], at + first_row() * step_bytes,
                                  at + (Tile::rows + first_column()) * step_bytes, sums);
                }
                stage = stage + 1 == stages ? 0 : stage + 1;
            }
            if (busy) {
                keep_best(sums, scales, column);
            }
        }
        __syncthreads();
    }

    // Each lane reads the scales of two of its warp's 64 columns: NaN where there is no token.
    __device__ void read_scales(int tile, float (&scales)[2]) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const unsigned token =
                shared.column_tokens[tile % (stages + 1)][first_column() + half * lanes + lane_of_thread()];
            scales[half] = token == nothing ? NAN : problem.scales[token];
            if (token != nothing && !(scales[half] >= 0.0f && isfinite(scales[half]))) {
                report(problem.status, Fault::scores);
            }
        }
    }

    // For a warp: keeps the largest products of its 64 columns, which begin at `column`.
    __device__ void keep_best(const Sums& sums, const float (&own)[2], int column) {
        float* const scales = shared.scales[warp_of_thread()];
        if constexpr (coded) {
            scales[lane_of_thread()] = own[0];
            scales[lanes + lane_of_thread()] = own[1];
            __syncwarp();
        }
#pragma unroll 1
        for (int d = 0; d < shared.read.count; ++d) {
            const int first = shared.read.begin[d] - column;
            const int last = shared.read.begin[d + 1] - column;
            if (first >= warp_columns || last <= 0 || first == last) {
                continue;
            }
            Key keys[Products::rows];
            largest<Products>(sums, scales, first, last, keys);
            Key* const best = shared.best[part() % Tile::column_warps][d] + first_row();
#pragma unroll
            for (int i = 0; i < Products::rows; ++i) {
#pragma unroll
                for (int distance = Products::across / 2; distance > 0; distance /= 2) {
                    const Key other = __shfl_xor_sync(all_lanes, keys[i], distance);
                    keys[i] = other > keys[i] ? other : keys[i];
                }
                if (lane_of_thread() % Products::across == 0 && keys[i] > best[Products::row(i)]) {
                    best[Products::row(i)] = keys[i];
                }
            }
        }
    }

    [[nodiscard]] __device__ Key best_key(int document, int row) const {
        Key key = shared.best[0][document][row];
#pragma unroll
        for (int w = 1; w < Tile::column_warps; ++w) {
            key = shared.best[w][document][row] > key ? shared.best[w][document][row] : key;
        }
        return key;
    }

    // Replaces the keys of the rows from `row` on by the products.
    __device__ void settle(int row) {
        const int here = min(shared.asked.tokens() - row, Tile::rows);
        const int all = shared.read.count * here;
        if constexpr (coded) {
            // Eight lanes compute each product of a query's unrounded numbers with the chosen token.
            for (int first = warp_of_thread() * 4; first < all; first += Tile::threads / lanes * 4) {
                const int i = first + lane_of_thread() / 8;
                const bool held = i < all && !shared.read.empty(i / here);
                const float product = product_of_chosen(held ? i / here : 0, held ? i % here : 0, held);
                __syncwarp();
                if (held && lane_of_thread() % 8 == 0) {
                    shared.best[0][i / here][i % here] = __float_as_uint(product);
                }
            }
        } else {
            for (int i = static_cast<int>(threadIdx.x); i < all; i += Tile::threads) {
                shared.best[0][i / here][i % here] = __float_as_uint(number_of(best_key(i / here, i % here)));
            }
        }
        __syncthreads();
    }
    // Adds in the same order as the CPU: 32 sums, four in each lane, are added up by halves.
    __device__ float product_of_chosen(int document, int row, bool held) const {
        const unsigned place = 0xFFFFFFFFU - static_cast<unsigned>(best_key(document, row));
        const std::int64_t chosen = held ? shared.read.first[document] + place : 0;
        const float scale = held ? problem.scales[chosen] : 0.0f;
        const auto dimensions = static_cast<int>(problem.dimensions);
        const float* const query = problem.numbers + (held ? shared.row_tokens[row] : 0) * problem.dimensions;
        const auto* const codes =
            reinterpret_cast<const std::int8_t*>(problem.of_documents.first) + chosen * problem.dimensions;
        float sums[4] = {};
#pragma unroll 2
        for (int d = lane_of_thread() % 8 * 4; held && d < dimensions; d += lanes) {
            float numbers[4] = {};
            int token[4] = {};
            if (problem.of_documents.whole_pieces && problem.aligned) {
                const float4 four = *reinterpret_cast<const float4*>(query + d);
                const int word = *reinterpret_cast<const int*>(codes + d);
                numbers[0] = four.x;
                numbers[1] = four.y;
                numbers[2] = four.z;
                numbers[3] = four.w;
                for (int k = 0; k < 4; ++k) {
                    token[k] = static_cast<std::int8_t>(word >> 8 * k);
                }
            } else {
                for (int k = 0; k < 4 && d + k < dimensions; ++k) {
                    numbers[k] = query[d + k];
                    token[k] = codes[d + k];
                }
            }
            for (int k = 0; k < 4; ++k) {
                sums[k] += numbers[k] * static_cast<float>(token[k]);
            }
        }
        for (int distance = 4; distance > 0; distance /= 2) {
            for (int k = 0; k < 4; ++k) {
                sums[k] += __shfl_xor_sync(all_lanes, sums[k], distance);
            }
        }
        return (sums[0] + sums[2] + (sums[1] + sums[3])) * scale;
    }

    // For the thread's query and document: adds the products of the query's tokens in the rows from `row` on, in
    // their order.
    __device__ void add_total(int row) {
        const int query = static_cast<int>(threadIdx.x) / most_documents;
        const int document = static_cast<int>(threadIdx.x) % most_documents;
        if (query >= shared.asked.count || document >= shared.read.count || shared.read.empty(document)) {
            return;
        }
        double total = shared.total[threadIdx.x];
        const int last = min(shared.asked.begin[query + 1] - row, Tile::rows);
#pragma unroll 1
        for (int r = max(shared.asked.begin[query] - row, 0); r < last; ++r) {
            total += static_cast<double>(__uint_as_float(static_cast<unsigned>(shared.best[0][document][r])));
        }
        shared.total[threadIdx.x] = total;
    }
};

template <class Products, class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    maxsim_kernel(const __grid_constant__ Problem problem) {
    GPU_DYN_SHARED(unsigned char, memory);
    // Not a plain read: other blocks may report faults meanwhile.
    if (__syncthreads_or(threadIdx.x == 0 && atomicOr(problem.status, 0) != 0) != 0) {
        return;
    }
    auto& shared = *reinterpret_cast<Shared<Products, Tile>*>(memory);
    const std::int64_t* const pairs = problem.pairs;
    if (threadIdx.x == 0) {
        const std::int64_t parts = (problem.rows + problem.part_rows - 1) / problem.part_rows;
        shared.first_row = blockIdx.x % parts * problem.part_rows;
        shared.first_column = blockIdx.x / parts * problem.part_columns;
        shared.rows = static_cast<int>(min(problem.rows - shared.first_row, std::int64_t{problem.part_rows}));
        shared.columns =
            static_cast<int>(min(problem.columns - shared.first_column, std::int64_t{problem.part_columns}));
        shared.row = 0;
        shared.column = 0;
        shared.by_columns = problem.rows > 1 && problem.columns > 1 && pairs[0] != pairs[2];
    }
    __syncthreads();
    const auto place = [&](int row, int column) {
        return shared.by_columns ? (shared.first_column + column) * problem.rows + shared.first_row + row
                                 : (shared.first_row + row) * problem.columns + shared.first_column + column;
    };
    const auto query = [&](int row, int column) { return pairs[2 * place(row, column)]; };
    const auto document = [&](int row, int column) { return pairs[2 * place(row, column) + 1]; };
    const int own_row = static_cast<int>(threadIdx.x) / most_documents;
    const int own_column = static_cast<int>(threadIdx.x) % most_documents;
    const bool fits = own_row >= shared.rows || own_column >= shared.columns ||
                      (query(own_row, own_column) == query(own_row, 0) &&
                       document(own_row, own_column) == document(0, own_column));
    const bool all = __syncthreads_and(fits) != 0;
    while (shared.row < shared.rows) {
        const int lane = lane_of_thread();
        if (warp_of_thread() == 0) {
            const int queries = all ? shared.rows : 1;
            shared.asked.make(problem.queries, query(shared.row + min(lane, queries - 1), shared.column), queries);
        } else if (warp_of_thread() == 1) {
            int documents = all ? shared.columns : 1;
            while (shared.column + documents < shared.columns &&
                   query(shared.row, shared.column + documents) == query(shared.row, shared.column)) {
                ++documents;
            }
            shared.read.make(problem.documents, document(shared.row, shared.column + min(lane, documents - 1)),
                             documents);
        }
        __syncthreads();
        Job<Products, Tile>{problem, shared}.run();
        if (own_row < shared.asked.count && own_column < shared.read.count) {
            const float score = Job<Products, Tile>{problem, shared}.score(own_row, own_column);
            problem.scores[place(shared.row + own_row, shared.column + own_column)] = score;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            shared.column += shared.read.count;
            if (shared.column >= shared.columns) {
                shared.column = 0;
                shared.row += shared.asked.count;
            }
        }
        __syncthreads();
    }
}

// About as many as a large GPU has. The sizes of parts depend on it, but no result does.
constexpr double multiprocessors = 128;

std::int64_t parts(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// How many columns of pairs a block takes: as few as keep its tile full, and all multiprocessors busy to the end.
template <class Tile>
int part_columns(std::int64_t parts_of_rows, std::int64_t columns, double tokens) {
    int best = 1;
    double least = INFINITY;
    for (int size = 1; size <= most_documents; ++size) {
        const auto blocks = static_cast<double>(parts_of_rows * parts(columns, size));
        const double tiles = std::ceil(size * tokens / warp_columns) / Tile::column_warps;
        // The last blocks have a multiprocessor to themselves, and leave half of it idle.
        const double time = blocks / multiprocessors * (tiles + 0.1) + tiles * Tile::blocks / 2;
        if (time < least) {
            least = time;
            best = size;
        }
    }
    return best;
}

template <class Products, class Tile>
void multiply(Problem problem, const Queue& queue) {
    const auto average = [](const RaggedArrays<float>& lists) {
        return static_cast<double>(lists.size) / static_cast<double>(std::max<std::int64_t>(lists.lists, 1));
    };
    const double asked = std::max(average(problem.queries), 1.0);
    problem.part_rows =
        static_cast<int>(std::clamp(Tile::rows / asked, 1.0, double{Tile::threads / most_documents}));
    problem.part_rows =
        static_cast<int>(std::min<std::int64_t>(std::min(problem.part_rows, most_queries), problem.rows));
    const std::int64_t parts_of_rows = parts(problem.rows, problem.part_rows);
    problem.part_columns = part_columns<Tile>(parts_of_rows, problem.columns, average(problem.documents));
    const auto kernel = maxsim_kernel<Products, Tile>;
    constexpr int bytes = sizeof(Shared<Products, Tile>);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const std::int64_t blocks = parts_of_rows * parts(problem.columns, problem.part_columns);
    if (blocks > INT32_MAX) {
        throw Error("pairs: too many for one call");
    }
    GPU_LAUNCH(kernel, static_cast<unsigned>(blocks), Tile::threads, bytes, stream_of(queue), problem);
}

// If there are as many pairs as in the matrix of all queries and all documents, tiles have many queries.
template <class Products>
void multiply(Problem problem, const Queue& queue) {
    const std::int64_t n = problem.columns;
    if (problem.queries.lists > 1 && n / problem.queries.lists == problem.documents.lists &&
        n % problem.queries.lists == 0) {
        problem.rows = problem.queries.lists;
        problem.columns = problem.documents.lists;
        multiply<Products, typename Products::ManyQueries>(problem, queue);
    } else {
        multiply<Products, typename Products::OneQuery>(problem, queue);
    }
}

bool is_aligned(const void* array) { return reinterpret_cast<std::uintptr_t>(array) % piece_bytes == 0; }

template <class Number>
Vectors vectors(const Number* first, std::int64_t numbers) {
    const unsigned bytes = static_cast<unsigned>(numbers) * sizeof(Number);
    return {reinterpret_cast<const unsigned char*>(first), bytes, bytes % piece_bytes == 0 && is_aligned(first)};
}

}  // namespace

std::size_t maxsim_workspace(std::size_t query_tokens, std::size_t dimensions) {
    Arena arena;
    arrays(arena, query_tokens, dimensions);
    return arena.used();
}

void maxsim(std::span<const float> queries, std::span<const std::int64_t> query_offsets,
            const TokenVectors& documents, std::span<const std::int64_t> pairs, std::int64_t dimensions,
            Precision precision, std::span<float> scores, const Queue& queue) {
    if (dimensions < 1 || dimensions > most_dimensions) {
        throw Error("dimensions: must be from 1 to 65536");
    }
    const auto width = static_cast<std::size_t>(dimensions);
    const bool coded = !documents.codes.empty();
    const std::size_t size = coded ? documents.codes.size() : documents.numbers.size();
    if (queries.size() % width != 0 || size % width != 0) {
        throw Error("queries, tokens: must hold `dimensions` numbers per token");
    }
    if (documents.scales.size() != documents.codes.size() / width) {
        throw Error("scales: must hold one number per token for codes, and none for numbers");
    }
    if (pairs.size() != 2 * scores.size()) {
        throw Error("pairs: must hold a query and a document for each score");
    }
    if (coded && precision != Precision::float32) {
        throw Error("precision: must be 'float32' for codes");
    }
    const std::size_t query_tokens = queries.size() / width;
    if (size / width >= nothing || query_tokens > most_tokens) {
        throw Error("queries, tokens: a GPU supports at most 67,108,864 query and 4,294,967,294 document tokens");
    }
    check_queue(queue, maxsim_workspace(query_tokens, width));
    // Lists of tokens. Each vector has `dimensions` numbers.
    Problem problem{};
    problem.queries = ragged_arrays(Ragged<float>{query_offsets, queries.first(query_tokens)}, "query_offsets");
    problem.documents = ragged_arrays(Ragged<float>{documents.offsets, documents.numbers}, "token_offsets");
    problem.documents.size = static_cast<std::int64_t>(size / width);
    Arena arena(queue.workspace.data());
    std::int8_t* const codes = coded ? arrays(arena, query_tokens, width).codes : nullptr;
    const auto n = static_cast<std::int64_t>(scores.size());
    const std::size_t checks = std::max({scores.size(), query_offsets.size(), query_tokens * lanes});
    GPU_LAUNCH(prepare_maxsim_kernel, blocks_for(checks, threads), threads, 0, stream_of(queue), problem.queries,
               problem.documents, dimensions, pairs.data(), n, codes, static_cast<int>(code_width(width)),
               queue.status);
    if (n > 0) {
        problem.of_queries = coded ? vectors(codes, static_cast<std::int64_t>(code_width(width)))
                                   : vectors(queries.data(), dimensions);
        problem.of_documents =
            coded ? vectors(documents.codes.data(), dimensions) : vectors(documents.numbers.data(), dimensions);
        problem.scales = documents.scales.data();
        problem.numbers = queries.data();
        problem.aligned = is_aligned(queries.data());
        problem.dimensions = dimensions;
        problem.pairs = pairs.data();
        problem.rows = 1;
        problem.columns = n;
        problem.scores = scores.data();
        problem.status = queue.status;
        if (coded) {
            multiply<CodeProducts>(problem, queue);
        } else if (precision == Precision::bfloat16) {
            multiply<RoundedProducts>(problem, queue);
        } else {
            multiply<ExactProducts>(problem, queue);
        }
    }
    check_launch("maxsim");
}

}  // namespace pyfast::cuda
