// The one exception type of the library's own: bad input; the message opens with the argument's name. An op that
// threw may have written to its output, and has left no other trace. Beside it there is only std::bad_alloc.
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
