// The exception for bad input. Its message begins with the name of the argument. An op that threw may have written
// to its output, and changed nothing else. Ops can also throw std::bad_alloc, and Stopped (iteration.hpp) if they
// can be stopped.
#pragma once

#include <stdexcept>
#include <string>

#include "pyfast/api.hpp"

namespace pyfast {

class PYFAST_API Error : public std::invalid_argument {
  public:
    explicit Error(const std::string& message) : std::invalid_argument(message) {}
};

}  // namespace pyfast
