// The terms of a pool in a hash table with open addressing, in the shared memory of a block.
//
// A pool may have more terms than the table has room for. Then the vocabulary is cut into 2, 4, ... parts by the
// highest bits of the hashes, and the table gets one part after the other. The hashes of all terms differ, so with
// enough parts each of them fits.
#pragma once

#include "pools.cuh"

namespace pyfast::cuda {

// Up to `lanes` entries of a document v: those from e on.
struct Chunk {
    std::int64_t v;
    std::int64_t e;
    std::int64_t end;   // of the row
    std::int32_t term;  // of the lane's entry
    float weight;       // of the lane's entry

    [[nodiscard]] __device__ bool there() const { return e + lane_of_thread() < end; }
    [[nodiscard]] __device__ bool ends() const { return e + lanes >= end; }
};

// The entries of those documents of a pool that a warp handles. The next entries are read while the warp works on
// the ones before. A document without entries has one empty chunk.
struct Walk {
    const ForwardArrays& x;
    const PoolArrays& pools;
    std::int64_t last;
    std::int64_t base;   // the first of the documents whose rows the lanes hold
    std::int64_t begin;  // of the lane's row
    std::int64_t end;
    int held = 0;  // how many of these documents the walk has reached
    bool more = true;
    Chunk next{};

    __device__ Walk(const ForwardArrays& index, const PoolArrays& batch, std::int64_t first, std::int64_t past)
        : x(index), pools(batch), last(past), base(first + warp_of_thread()) {
        read_rows();
        advance();
    }
    [[nodiscard]] static __device__ std::int64_t warps() { return blockDim.x / lanes; }
    __device__ void read_rows() {
        const std::int64_t mine = base + lane_of_thread() * warps();
        begin = 0;
        end = 0;
        if (mine < last) {
            const std::int32_t document = pools.values[mine];
            begin = x.offset(document);
            end = x.offset(document + 1);
        }
    }
    // Called by all lanes.
    __device__ void advance() {
        if (!next.ends()) {
            next.e += lanes;
        } else {
            if (held == lanes) {
                base += lanes * warps();
                held = 0;
                read_rows();
            }
            next.v = base + held * warps();
            next.e = __shfl_sync(all_lanes, begin, held);
            next.end = __shfl_sync(all_lanes, end, held);
            more = next.v < last;
            ++held;
        }
        if (next.there()) {
            next.term = x.term(next.e + lane_of_thread());
            next.weight = x.weights[next.e + lane_of_thread()];
        }
    }
    // Calls use(chunk) for all chunks, with all lanes.
    template <class Use>
    __device__ void each(const Use& use) {
        while (more) {
            const Chunk now = next;
            advance();
            use(now);
        }
    }
};

struct TermTable {
    std::int32_t* terms;   // [slots]; -1: a free slot
    std::int32_t* counts;  // [slots] the number of documents with the term
    std::int32_t* used;    // [1] slots
    int slots;             // a power of two
    int cuts = 0;          // the vocabulary has 2^cuts parts
    int part = 0;          // the part that the table has

    [[nodiscard]] static __device__ std::uint32_t hash(std::int32_t term) {
        return static_cast<std::uint32_t>(term) * 0x9E3779B9U;
    }
    [[nodiscard]] __device__ bool has_part_of(std::int32_t term) const {
        return cuts == 0 || hash(term) >> (32 - cuts) == static_cast<std::uint32_t>(part);
    }
    [[nodiscard]] __device__ int first_slot(std::int32_t term) const {
        return static_cast<int>(hash(term) >> 8) & (slots - 1);
    }
    // The most slots that may be in use. The rest is room for what a block adds before it checks.
    [[nodiscard]] __device__ int most() const { return slots - slots / 4; }

    // Called by all threads of the block, like the next two.
    __device__ void clear() const {
        for (int slot = static_cast<int>(threadIdx.x); slot < slots; slot += static_cast<int>(blockDim.x)) {
            terms[slot] = -1;
            counts[slot] = 0;
        }
        if (threadIdx.x == 0) {
            *used = 0;
        }
        __syncthreads();
    }
    // Calls add(chunk) for the entries of the pool first .. last, with one lane for each entry; add returns
    // whether it has put a new term in. Returns false as soon as the table is too full. That depends only on the
    // pool, not on the order of the threads.
    template <class Add>
    __device__ bool fill(const ForwardArrays& x, const PoolArrays& pools, std::int64_t first, std::int64_t last,
                         const Add& add) const {
        const int chunks = slots / 4 / static_cast<int>(blockDim.x);
        Walk walk(x, pools, first, last);
        bool more = true;
        while (more) {
            for (int chunk = 0; chunk < chunks && walk.more; ++chunk) {
                const Chunk now = walk.next;
                walk.advance();
                const unsigned found = __ballot_sync(all_lanes, now.there() && add(now));
                if (found != 0 && lane_of_thread() == 0) {
                    atomicAdd(used, __popc(found));
                }
            }
            more = __syncthreads_or(walk.more ? 1 : 0) != 0;
            const bool full = *used > most();
            __syncthreads();  // all have read `used`
            if (full) {
                return false;
            }
        }
        return true;
    }

    // The slot of a term, and whether it was free. Any threads may do so at the same time.
    [[nodiscard]] __device__ int add(std::int32_t term, bool& fresh) const {
        int slot = first_slot(term);
        std::int32_t found = atomicCAS(terms + slot, -1, term);
        while (found != -1 && found != term) {
            slot = (slot + 1) & (slots - 1);
            found = atomicCAS(terms + slot, -1, term);
        }
        fresh = found == -1;
        return slot;
    }
    // The slot of a term that is in the table.
    [[nodiscard]] __device__ int find(std::int32_t term) const {
        int slot = first_slot(term);
        while (terms[slot] != term) {
            slot = (slot + 1) & (slots - 1);
        }
        return slot;
    }
};

// The sizes of a batch's tables, which follow from the average size of its pools.
struct TableSize {
    static constexpr std::size_t most_slots = 4096;
    static constexpr std::size_t slot_size = 16;
    static constexpr std::size_t parts_size = 512;  // for what threads of a block exchange
    unsigned threads;
    int slots;

    TableSize(const ForwardArrays& x, const PoolArrays& pools) {
        const std::int64_t row = x.entries / (x.documents > 0 ? x.documents : 1) + 1;
        const std::int64_t entries = pools.lists > 0 ? row * pools.size / pools.lists : 0;
        threads = entries > 8192 ? 512 : 256;
        slots = 1024;
        while (slots < static_cast<int>(most_slots) && slots < entries / 2) {
            slots *= 2;
        }
    }
    [[nodiscard]] std::size_t bytes() const { return parts_size + static_cast<std::size_t>(slots) * slot_size; }
};

}  // namespace pyfast::cuda
