#include <string>

#include "gpu.cuh"
#include "pyfast/cuda/device.hpp"
#include "pyfast/error.hpp"

namespace pyfast::cuda {

namespace {

struct Meaning {
    Fault fault;
    const char* message;
};

constexpr Meaning meanings[] = {
    {Fault::offsets, "offsets: do not start at 0, decrease, or do not end with the values"},
    {Fault::documents, "doc_ids: a document is outside the forward index"},
    {Fault::rows, "X: a row is outside the stored entries, or its term ids are not strictly increasing"},
    {Fault::weights, "X: a weight is negative, NaN or above 1e16"},
    {Fault::masked, "mask_terms: a term is outside the vocabulary"},
    {Fault::bounds, "pool_offsets: a pool is larger than the bounds that were given"},
    {Fault::scores, "scores: a value is infinite or NaN, or a personalization is negative"},
    {Fault::edges, "g.indices: a row is not strictly increasing within its pool"},
    {Fault::edge_weights, "g.weights: a weight is negative, infinite or NaN"},
    {Fault::segments, "segments: a segment is not in the corpus, or occurs twice in a prior"},
    {Fault::places, "place: a cursor is outside its stream"},
    {Fault::tombstones, "tombstones: live is damaged (a bit stands for an empty word)"},
    {Fault::sources, "indices: an edge's source is not in x_src"},
    {Fault::pairs, "pairs: a pair has a query or document that does not exist"},
};

}  // namespace

void raise(std::int32_t status) {
    std::string message;
    for (const Meaning& meaning : meanings) {
        if ((status & static_cast<std::int32_t>(meaning.fault)) != 0) {
            message += (message.empty() ? "" : "; ") + std::string(meaning.message);
        }
    }
    if (status != 0) {
        throw Error(message.empty() ? "status: unknown fault" : message);
    }
}

Devices devices() {
    Devices found;
    const cudaError_t error = cudaGetDeviceCount(&found.count);
    if (error != cudaSuccess) {
        found.problem = cudaGetErrorString(error);
        found.count = 0;
        static_cast<void>(cudaGetLastError());  // clears the error
    } else if (found.count == 0) {
        found.problem = "the driver finds no GPU";
    }
    return found;
}

void check_launch(const char* op) {
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
        throw DeviceError(std::string(op) + ": " + cudaGetErrorString(error));
    }
}

void check_queue(const Queue& queue, std::size_t workspace) {
    if (queue.status == nullptr) {
        throw Error("status: there must be a status word");
    }
    if (queue.workspace.size() < workspace) {
        throw Error("workspace: must have " + std::to_string(workspace) + " bytes, but has " +
                    std::to_string(queue.workspace.size()));
    }
}

}  // namespace pyfast::cuda
