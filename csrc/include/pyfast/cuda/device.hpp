// What the ops on a GPU share. No header of CUDA's is needed to use them.
//
// They take the same views as the ops of pyfast::core, of device memory: spans of arrays that the GPU can read,
// the options on the host. They put their work on the caller's stream and return; they never synchronise, and
// allocate nothing: where an op needs memory, `<op>_workspace` says how much, for sizes that the host knows.
//
// Lengths are checked on the host, and a wrong one throws Error. Contents are checked on the device, before they
// are used, and never lead outside the spans: what is malformed leaves a Fault in the status word. From then on
// ops with that word do nothing that they can leave, and what is in their outputs means nothing. So one look at
// it, whenever the caller synchronises anyway, tells of all the ops before:
//
//     evidence_graph_count(x, pools, {}, options, indptr, queue);
//     pagerank(graphs, {}, {}, rank, {}, queue);
//     cudaMemcpyAsync(&status, queue.status, ...); cudaStreamSynchronize(stream);
//     pyfast::cuda::raise(status);
//
// A word in which there are faults stays as it is until the caller clears it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "pyfast/api.hpp"

namespace pyfast::cuda {

// Where an op's work goes.
struct Queue {
    void* stream = nullptr;          // a cudaStream_t; null: the default stream
    std::int32_t* status = nullptr;  // in device memory; 0 as long as nothing was malformed
    std::span<std::byte> workspace;  // device memory, aligned to 256 bytes; the op's until its work is done
};

// What is malformed, one bit each: any number of them may be found at once, in any order.
enum class Fault : std::int32_t {
    offsets = 1,         // a ragged array's: they do not start at 0, decrease, or do not end with its values
    documents = 2,       // a document is not one of the forward index
    rows = 4,            // a row of the forward index lies outside it, or its term ids are out of order or range
    weights = 8,         // a weight of the forward index is negative, NaN or above 1e16
    masked = 16,         // a masked term is not one of the vocabulary
    bounds = 32,         // a pool is larger than the bounds that the host was given
    scores = 64,         // a score is infinite or NaN, or a share negative
    edges = 128,         // a graph's row is not strictly increasing within its pool
    edge_weights = 256,  // a graph's weight is negative, infinite or NaN
    segments = 512,      // a segment is not one of the corpus, or is twice in a prior
    places = 1024,       // a cursor is outside its stream
    tombstones = 2048,   // the words above do not go with those below
    sources = 4096,      // an edge's source is not one of them
    pairs = 8192,        // a pair names a query or a document that there is not
};

// Throws Error that says what is malformed; does nothing for 0.
PYFAST_API void raise(std::int32_t status);

// The CUDA runtime refused work: no device, no driver, no memory.
class PYFAST_API DeviceError : public std::runtime_error {
  public:
    explicit DeviceError(const std::string& message) : std::runtime_error(message) {}
};

// How many devices can be used; none where there is no driver, and why.
struct Devices {
    std::string problem;  // empty where there are devices
    int count = 0;
};
PYFAST_API Devices devices();

// The name of one of them, its compute capability and memory. Throws DeviceError where there is none of that
// number.
PYFAST_API std::string device_name(int device);

}  // namespace pyfast::cuda
