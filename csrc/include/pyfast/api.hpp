// PYFAST_API marks the functions and classes that a shared libpyfast exports. Everything else is hidden.
#pragma once

// The CMake target pyfast::core defines PYFAST_SHARED if it is a shared library.
#ifdef PYFAST_SHARED
#define PYFAST_API __attribute__((visibility("default")))
#else
#define PYFAST_API
#endif
