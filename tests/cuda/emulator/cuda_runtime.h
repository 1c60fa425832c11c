// Takes the place of the CUDA toolkit's header where g++ compiles the kernels: all of CUDA that they use.
//
// What runs is the kernels' own source, each CUDA thread a fiber of one CPU thread. It says nothing of what nvcc
// makes of that source (the interpreter of PTX does), of the GPU's weaker memory model, or of speed.
#pragma once

#include "atomics.hpp"
#include "functions.hpp"
#include "launch.hpp"
#include "runtime.hpp"
#include "types.hpp"
#include "warp.hpp"
