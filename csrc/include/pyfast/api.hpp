// PYFAST_API: what a shared libpyfast shows. Everything else in it is hidden.
#pragma once

// PYFAST_SHARED comes with the CMake target pyfast::core where that is a shared library.
#ifdef PYFAST_SHARED
#define PYFAST_API __attribute__((visibility("default")))
#else
#define PYFAST_API
#endif
