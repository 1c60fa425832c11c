// What the driver can call: functions that put work on the device, each given its arguments one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace driver {

struct Array {
    std::byte* memory;  // on the device
    std::size_t bytes;
    bool returned;
};
using Argument = std::variant<std::int64_t, double, Array>;

// The stream of all calls: not the default one, to which work goes that names no stream.
inline void* const stream = reinterpret_cast<void*>(0x57E40);

class Arguments {
  public:
    explicit Arguments(std::span<const Argument> all) : left_(all) {}
    template <class T = std::int64_t>
    T integer() {
        return static_cast<T>(std::get<std::int64_t>(next()));
    }
    double real() { return std::get<double>(next()); }
    template <class T>
    std::span<T> array() {
        const auto& found = std::get<Array>(next());
        return {reinterpret_cast<T*>(found.memory), found.bytes / sizeof(T)};
    }
    [[nodiscard]] bool empty() const { return left_.empty(); }

  private:
    const Argument& next() {
        if (left_.empty()) {
            throw std::invalid_argument("the call takes more arguments");
        }
        const Argument& first = left_.front();
        left_ = left_.subspan(1);
        return first;
    }
    std::span<const Argument> left_;
};

using Call = void (*)(Arguments&);
const std::map<std::string, Call>& calls();

}  // namespace driver
