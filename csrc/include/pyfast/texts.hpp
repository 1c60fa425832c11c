// The texts that an op returns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pyfast {

// Text t of offsets.size() - 1 is bytes[offsets[t] .. offsets[t + 1]). It is UTF-8 if its parts are.
struct Texts {
    std::vector<std::int64_t> offsets{0};
    std::string bytes;

    void end_text() { offsets.push_back(static_cast<std::int64_t>(bytes.size())); }
};

}  // namespace pyfast
