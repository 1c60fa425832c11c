#include "pools.cuh"
#include "pyfast/cuda/maxsim.hpp"
#include "pyfast/error.hpp"

namespace pyfast::cuda {

namespace {

constexpr int threads = 128;
constexpr std::int64_t most_dimensions = 65536;

// Numbers or codes. `documents` has the offsets of both.
struct Tokens {
    const float* numbers;
    const std::int8_t* codes;
    const float* scales;
};

struct Workspace {
    std::int8_t* codes;  // the codes of the queries' tokens
};

Workspace arrays(Arena& arena, std::size_t query_tokens, std::size_t dimensions) {
    return {arena.take<std::int8_t>(query_tokens * dimensions)};
}

// Checks everything except the vectors. A kernel that reports faults reads no vectors: lanes would see different
// things.
__global__ void check_maxsim_kernel(RaggedArrays<float> queries, RaggedArrays<float> documents,
                                    const float* scales, const std::int64_t* pairs, float* scores, std::int64_t n,
                                    std::int32_t* status) {
    for (std::int64_t q = thread_of_grid(); q < queries.lists; q += threads_of_grid()) {
        if (!offsets_hold(queries, q)) {
            report(status, Fault::offsets);
        }
    }
    for (std::int64_t p = thread_of_grid(); p < n; p += threads_of_grid()) {
        scores[p] = 0.0f;
        const std::int64_t query = pairs[2 * p];
        const std::int64_t document = pairs[2 * p + 1];
        if (query < 0 || query >= queries.lists || document < 0 || document >= documents.lists) {
            report(status, Fault::pairs);
            continue;
        }
        const std::int64_t first = documents.offsets[document];
        const std::int64_t last = documents.offsets[document + 1];
        if (first < 0 || last < first || last > documents.size || last - first > INT32_MAX / 2) {
            report(status, Fault::offsets);
            continue;
        }
        for (std::int64_t t = first; scales != nullptr && t < last; ++t) {
            if (!(scales[t] >= 0.0f && isfinite(scales[t]))) {
                report(status, Fault::scores);
            }
        }
    }
}

// One warp for each token of the queries: checks it, and with codes rounds it as `maxsim_rows::round` does.
__global__ void round_queries_kernel(const float* queries, std::int64_t tokens, std::int64_t dimensions,
                                     std::int8_t* codes, std::int32_t* status) {
    for (std::int64_t t = warp_of_grid(); t < tokens; t += warps_of_grid()) {
        const float* const token = queries + t * dimensions;
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
        most = warp_max(most);
        const float scale = most > 1e-36f && isfinite(most) ? 63.5f / most : 0.0f;
        for (std::int64_t d = lane_of_thread(); codes != nullptr && d < dimensions; d += lanes) {
            const float number = isfinite(token[d]) ? token[d] * scale : 0.0f;
            codes[t * dimensions + d] = static_cast<std::int8_t>(number < 0.0f ? number - 0.5f : number + 0.5f);
        }
    }
}

// The result of a lane: the first token of the document with the largest product.
struct Found {
    float product;
    int token;
};

__device__ inline Found warp_first_largest(Found found) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        const float product = __shfl_xor_sync(all_lanes, found.product, distance);
        const int token = __shfl_xor_sync(all_lanes, found.token, distance);
        if (product > found.product || (product == found.product && token < found.token)) {
            found = {product, token};
        }
    }
    return found;
}

// For lanes that take turns with the tokens of a document.
__device__ inline float largest_number(const float* query, const float* document, int count,
                                       std::int64_t dimensions) {
    float best = -INFINITY;
    float poison = 0.0f;
    for (int t = lane_of_thread(); t < count; t += lanes) {
        const float* const token = document + t * dimensions;
        float sum = 0.0f;
        for (std::int64_t d = 0; d < dimensions; ++d) {
            sum += query[d] * token[d];
        }
        best = sum > best ? sum : best;
        poison += sum * 0.0f;
    }
    return warp_max(best) + warp_sum(poison);
}

__device__ inline float largest_of_codes(const float* query, const std::int8_t* query_codes,
                                         const std::int8_t* document, const float* scales, int count,
                                         std::int64_t dimensions) {
    Found found{-INFINITY, INT32_MAX};
    for (int t = lane_of_thread(); t < count; t += lanes) {
        const std::int8_t* const token = document + t * dimensions;
        int sum = 0;
        for (std::int64_t d = 0; d < dimensions; ++d) {
            sum += query_codes[d] * token[d];
        }
        const float product = static_cast<float>(sum) * scales[t];
        if (product > found.product) {
            found = {product, t};
        }
    }
    found = warp_first_largest(found);
    const int chosen = found.token < count ? found.token : 0;
    float sum = 0.0f;
    for (std::int64_t d = lane_of_thread(); d < dimensions; d += lanes) {
        sum += query[d] * static_cast<float>(document[chosen * dimensions + d]);
    }
    return warp_sum(sum) * scales[chosen];
}

// One warp for each pair.
__global__ void maxsim_kernel(RaggedArrays<float> queries, RaggedArrays<float> documents, Tokens tokens,
                              const std::int8_t* query_codes, const std::int64_t* pairs, std::int64_t dimensions,
                              float* scores, std::int64_t n, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t p = warp_of_grid(); p < n; p += warps_of_grid()) {
        const std::int64_t first = documents.offsets[pairs[2 * p + 1]];
        const int count = static_cast<int>(documents.offsets[pairs[2 * p + 1] + 1] - first);
        const std::int64_t asked = queries.offsets[pairs[2 * p]];
        const std::int64_t end = queries.offsets[pairs[2 * p] + 1];
        double score = count == 0 && asked < end ? -static_cast<double>(INFINITY) : 0.0;
        if (count > 0) {
            for (std::int64_t t = asked; t < end; ++t) {
                const float* const query = queries.values + t * dimensions;
                score += static_cast<double>(
                    tokens.codes == nullptr
                        ? largest_number(query, tokens.numbers + first * dimensions, count, dimensions)
                        : largest_of_codes(query, query_codes + t * dimensions, tokens.codes + first * dimensions,
                                           tokens.scales + first, count, dimensions));
            }
        }
        if (lane_of_thread() == 0) {
            const auto rounded = static_cast<float>(score);
            scores[p] = count == 0 || isfinite(rounded) ? rounded : NAN;
        }
    }
}

__global__ void check_products_kernel(const float* scores, std::int64_t n, std::int32_t* status) {
    for (std::int64_t p = thread_of_grid(); p < n; p += threads_of_grid()) {
        if (isnan(scores[p])) {
            report(status, Fault::scores);
        }
    }
}

}  // namespace

std::size_t maxsim_workspace(std::size_t query_tokens, std::size_t dimensions) {
    Arena arena;
    arrays(arena, query_tokens, dimensions);
    return arena.used();
}

void maxsim(std::span<const float> queries, std::span<const std::int64_t> query_offsets,
            const TokenVectors& documents, std::span<const std::int64_t> pairs, std::int64_t dimensions,
            std::span<float> scores, const Queue& queue) {
    if (dimensions < 1 || dimensions > most_dimensions) {
        throw Error("dimensions: must lie in 1 to 65536");
    }
    const auto width = static_cast<std::size_t>(dimensions);
    const bool coded = !documents.codes.empty();
    const std::size_t size = coded ? documents.codes.size() : documents.numbers.size();
    if (queries.size() % width != 0 || size % width != 0) {
        throw Error("queries, tokens: must hold `dimensions` numbers per token");
    }
    if (documents.scales.size() != documents.codes.size() / width) {
        throw Error("scales: must hold one number per token, for codes only");
    }
    if (pairs.size() != 2 * scores.size()) {
        throw Error("pairs: must hold a query and a document for each score");
    }
    const std::size_t query_tokens = queries.size() / width;
    check_queue(queue, maxsim_workspace(query_tokens, width));
    // Lists of tokens. Each vector has `dimensions` numbers.
    const Ragged<float> asked{query_offsets, queries.first(query_tokens)};
    const RaggedArrays<float> of_queries = ragged_arrays(asked, "query_offsets");
    RaggedArrays<float> of_documents =
        ragged_arrays(Ragged<float>{documents.offsets, documents.numbers}, "token_offsets");
    of_documents.size = static_cast<std::int64_t>(size / width);
    Arena arena(queue.workspace.data());
    const Workspace space = arrays(arena, query_tokens, width);
    const auto n = static_cast<std::int64_t>(scores.size());
    const std::size_t most = scores.size() < query_offsets.size() ? query_offsets.size() : scores.size();
    GPU_LAUNCH(check_maxsim_kernel, blocks_for(most, threads), threads, 0, stream_of(queue), of_queries,
               of_documents, coded ? documents.scales.data() : nullptr, pairs.data(), scores.data(), n,
               queue.status);
    if (query_tokens > 0) {
        GPU_LAUNCH(round_queries_kernel, blocks_for(query_tokens, threads / lanes), threads, 0, stream_of(queue),
                   queries.data(), static_cast<std::int64_t>(query_tokens), dimensions,
                   coded ? space.codes : nullptr, queue.status);
    }
    if (n > 0) {
        const Tokens tokens{documents.numbers.data(), coded ? documents.codes.data() : nullptr,
                            documents.scales.data()};
        GPU_LAUNCH(maxsim_kernel, blocks_for(scores.size(), threads / lanes), threads, 0, stream_of(queue),
                   of_queries, of_documents, tokens, space.codes, pairs.data(), dimensions, scores.data(), n,
                   queue.status);
        GPU_LAUNCH(check_products_kernel, blocks_for(scores.size(), threads), threads, 0, stream_of(queue),
                   scores.data(), n, queue.status);
    }
    check_launch("maxsim");
}

}  // namespace pyfast::cuda
