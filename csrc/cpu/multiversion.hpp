// One binary for any x86-64: a marked function is compiled for several instruction sets, and the loader chooses
// the best one that the processor has. On other platforms, the mark is empty. With Clang it is empty too, because
// its clones of templates have no resolver, and it does not emit functions that only clones call. Users of Clang
// name the processor with -march in CMAKE_CXX_FLAGS. The results are the same.
#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#define PYFAST_MULTIVERSION __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PYFAST_MULTIVERSION
#endif
