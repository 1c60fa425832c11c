// The emulator's core: runs a launch, block by block, each CUDA thread a fiber; and where threads meet.
//
// What a GPU leaves undefined ends the program with one line that says what, in which kernel, block, thread
// and line: a barrier that part of the block does not reach, or reaches elsewhere; lanes named in a mask that do
// not come; a shuffle from a lane that is not in the mask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "types.hpp"

namespace emulator {

struct Argument {
    const void* data;
    std::size_t bytes;
    bool pointer;
};

struct Launch {
    const char* name;
    const void* kernel;
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes;  // dynamic
    std::vector<Argument> arguments;
    std::function<void()> thread;  // what one CUDA thread does
    const void* stream = nullptr;
};

// How the fibers take their turns, and what memory holds before it is written. A right kernel gives the same bits
// whatever these are.
struct Schedule {
    std::uint64_t seed = 0;  // 0: threads and blocks in their order; else shuffled
    unsigned char poison = 0xFF;
    std::size_t most_blocks = std::size_t{1} << 30;  // of kernels that loop over what is left
};
extern Schedule schedule;

// The stream that the caller of an op has named. Work on another one is refused: results there would not be ready
// when the caller reads them.
extern const void* callers_stream;

// Where set, gets the launches in place of the fibers.
struct Recorder {
    std::function<void(const Launch&)> launch;
    std::function<void(void* to, int value, std::size_t bytes)> fill;
    std::function<void(void* to, const void* from, std::size_t bytes)> copy;
    std::function<void(void* array, std::size_t bytes)> carve;
};
extern Recorder* recorder;

// Checks the launch as CUDA would, and runs it; an error is for cudaGetLastError.
void submit(const Launch& launch);

struct Place {
    const char* file;
    int line;
};

enum class Barrier { plain, count, all, any };
int barrier(Barrier kind, int predicate, Place place);

// A rendezvous of the lanes named in `mask`: each brings a word, and may then ask for those of the others.
enum class Exchange { shuffle, vote, reduce, product, fence };
void exchange(Exchange kind, unsigned mask, std::uint64_t word, Place place);
std::uint64_t word_of(unsigned lane);
[[noreturn]] void fail(Place place, const char* what);
unsigned lane();

// Copies of 16 bytes, or of zeros, that the running thread began. Those that it began before a commit are a group.
struct Copy {
    std::uint64_t* to;
    const std::uint64_t* from;
};
void begin_copy(Copy copy);
void commit_copies();
// Those of all groups but the last ones; for the caller to make.
std::vector<Copy> copies_due(int last_groups);

// Shared memory of the running block, poisoned; the same key is the same array.
void* shared_array(const void* key, std::size_t bytes, std::size_t alignment);
void* dynamic_shared();

// Device memory: a heap block of its own each. Under AddressSanitizer the host cannot touch it.
void* allocate(std::size_t bytes);
void release(void* memory);
bool on_device(const void* memory, std::size_t bytes);
// Of an allocation: what is behind this array, up to the next one, is no longer to be touched.
void carve(void* array, std::size_t bytes);
// Lets the host at the device's memory while it lives.
struct HostAccess {
    HostAccess();
    ~HostAccess();
};

}  // namespace emulator
