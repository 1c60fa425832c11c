// One binary for any x86-64: the marked function is compiled for several instruction sets, and the loader
// takes the best that the processor has. Elsewhere the mark is empty. So it is with Clang: its clones of templates
// have no resolver, and functions that only clones call are not emitted. Who builds with it names the processor,
// by -march in CMAKE_CXX_FLAGS; the results are the same.
#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#define PYFAST_MULTIVERSION __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PYFAST_MULTIVERSION
#endif
