// Takes the place of the CUDA toolkit's header where g++ compiles the kernels: all of CUDA that they use.
//
// What runs is the kernels' own source, each CUDA thread a fiber of one CPU thread. All builds find barriers that
// part of a block does not reach, or reaches in another line, lanes named in a mask that do not come, shuffles
// from lanes outside it, too much shared memory, arguments that do not point to the device, work that is not on the
// caller's stream; and, since threads take turns in two orders over two kinds of poison, in grids of two sizes where
// kernels loop, results that depend on any of these. AddressSanitizer finds what
// leaves an array of global, static or dynamic shared memory or of a workspace, and host code that reads the
// device's; UndefinedBehaviorSanitizer misaligned accesses and overflows; ThreadSanitizer accesses that no
// barrier, __syncwarp or end of a launch orders.
//
// It is blind to what nvcc makes of the source (the interpreter of PTX is not), to the GPU's weaker memory model,
// and to speed; where one line inlined twice is two barriers; and to races of equally numbered threads of blocks
// that are two apart, which ThreadSanitizer takes for one thread.
#pragma once

#include "atomics.hpp"
#include "functions.hpp"
#include "launch.hpp"
#include "runtime.hpp"
#include "tiles.hpp"
#include "types.hpp"
#include "warp.hpp"
