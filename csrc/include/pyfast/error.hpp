// The one exception type of the library: bad input, named argument first.
#pragma once

#include <stdexcept>
#include <string>

namespace pyfast {

class Error : public std::invalid_argument {
  public:
    explicit Error(const std::string& message) : std::invalid_argument(message) {}
};

}  // namespace pyfast
