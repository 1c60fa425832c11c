// Numbers and bytes through standard input and output, as they lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace driver {

inline void read_bytes(void* to, std::size_t bytes) {
    if (bytes > 0 && std::fread(to, 1, bytes, stdin) != bytes) {
        std::exit(0);  // who asks has gone
    }
}
template <class T>
T read() {
    T value;
    read_bytes(&value, sizeof value);
    return value;
}
inline std::string read_text() {
    std::string text(read<std::uint32_t>(), '\0');
    read_bytes(text.data(), text.size());
    return text;
}

inline void write_bytes(const void* from, std::size_t bytes) { std::fwrite(from, 1, bytes, stdout); }
template <class T>
void write(T value) {
    write_bytes(&value, sizeof value);
}
inline void write_text(const std::string& text) {
    write(static_cast<std::uint32_t>(text.size()));
    write_bytes(text.data(), text.size());
}

}  // namespace driver
