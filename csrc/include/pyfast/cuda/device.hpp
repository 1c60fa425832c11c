// What all GPU ops share. They can be used without CUDA's headers.
//
// They take the same views as the ops of pyfast::core, but of device memory: spans of arrays that the GPU can
// read. Options are on the host. An op queues its work on the caller's stream and returns. It never synchronises
// and never allocates: if it needs memory, `<op>_workspace` tells how much, from sizes that the host knows.
//
// Lengths are checked on the host, and a wrong one throws Error. Contents are checked on the device before they
// are used, and never lead outside the spans. Malformed contents set a Fault in the status word. From then on, ops
// with this word skip what they can, and their outputs are undefined. So the caller reads the word once, when it
// synchronises anyway, to learn the faults of all ops before:
//
//     evidence_graph_count(x, pools, {}, options, indptr, queue);
//     pagerank(graphs, {}, {}, rank, {}, queue);
//     cudaMemcpyAsync(&status, queue.status, ...); cudaStreamSynchronize(stream);
//     pyfast::cuda::raise(status);
//
// The faults of a word stay until the caller clears it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "pyfast/api.hpp"

namespace pyfast::cuda {

// Where an op queues its work.
struct Queue {
    void* stream = nullptr;          // a cudaStream_t; null: the default stream
    std::int32_t* status = nullptr;  // in device memory; 0 if nothing was malformed
    std::span<std::byte> workspace;  // device memory, aligned to 256 bytes; the op uses it until its work is done
};

// What is malformed: one bit for each kind. Several can be set, in any order.
enum class Fault : std::int32_t {
    offsets = 1,    // the offsets of a ragged array do not start at 0, decrease, or do not end with its values
    documents = 2,  // a document is not in the forward index
    rows = 4,       // a row is outside the forward index, or its term ids are out of order or out of range
    weights = 8,    // a weight of the forward index is negative, NaN or above 1e16
    masked = 16,    // a masked term is not in the vocabulary
    bounds = 32,    // a pool is larger than the bounds that the host was given
    scores = 64,    // a score is infinite or NaN, or a share is negative
    edges = 128,    // a row of a graph is not strictly increasing within its pool
    edge_weights = 256,  // a weight of a graph is negative, infinite or NaN
    segments = 512,      // a segment is not in the corpus, or occurs twice in a prior
    places = 1024,       // a cursor is outside its stream
    tombstones = 2048,   // the higher words of the tombstones do not fit the lower ones
    sources = 4096,      // the source of an edge does not exist
    pairs = 8192,        // a pair names a query or a document that does not exist
};

// Throws Error with what is malformed. Does nothing for 0.
PYFAST_API void raise(std::int32_t status);

// The CUDA runtime refused work: there is no device, no driver or no memory.
class PYFAST_API DeviceError : public std::runtime_error {
  public:
    explicit DeviceError(const std::string& message) : std::runtime_error(message) {}
};

// The number of usable devices. Without a driver, it is 0, with the reason.
struct Devices {
    std::string problem;  // empty if there are devices
    int count = 0;
};
PYFAST_API Devices devices();

// The name of a device, its compute capability and its memory. Throws DeviceError if there is no device with that
// number.
PYFAST_API std::string device_name(int device);

}  // namespace pyfast::cuda
