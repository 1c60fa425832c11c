// The library's exception for bad input; the message opens with the argument's name. An op that threw may have
// written to its output, and has left no other trace. Beside it there are std::bad_alloc and, of ops that can be
// stopped, Stopped (iteration.hpp).
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
