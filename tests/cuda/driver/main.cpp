// Answers requests: puts arrays into device memory, makes one call, gives the arrays back; device.py is the other
// end.
//
// A request may ask for the call's launches instead of their effect: then they are written down, kernel, sizes and
// arguments, for the interpreter of PTX.
#include <cstring>
#include <exception>

#include "calls.hpp"
#include "core.hpp"
#include "wire.hpp"

using namespace driver;

int main();

namespace {

// The launches of a call, as bytes.
class Log {
  public:
    Log() {
        recorder_.launch = [this](const emulator::Launch& launch) {
            put('L');
            put(reinterpret_cast<std::int64_t>(launch.kernel) - reinterpret_cast<std::int64_t>(&main));
            put(launch.grid);
            put(launch.block);
            put(std::uint64_t{launch.shared_bytes});
            put(static_cast<std::uint32_t>(launch.arguments.size()));
            for (const emulator::Argument& argument : launch.arguments) {
                put(static_cast<std::uint32_t>(argument.bytes));
                put(argument.data, argument.bytes);
            }
        };
        recorder_.fill = [this](void* to, int value, std::size_t bytes) {
            put('F');
            put(to);
            put(std::int64_t{value});
            put(std::uint64_t{bytes});
        };
        recorder_.copy = [this](void* to, const void* from, std::size_t bytes) {
            put('C');
            put(to);
            put(from);
            put(std::uint64_t{bytes});
        };
        recorder_.carve = [this](void* array, std::size_t bytes) {
            put('A');
            put(array);
            put(std::uint64_t{bytes});
        };
        emulator::recorder = &recorder_;
    }
    ~Log() { emulator::recorder = nullptr; }
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;
    [[nodiscard]] const std::string& bytes() const { return bytes_; }

  private:
    void put(const void* data, std::size_t bytes) { bytes_.append(static_cast<const char*>(data), bytes); }
    template <class T>
    void put(T value) {
        put(&value, sizeof value);
    }
    emulator::Recorder recorder_;
    std::string bytes_;
};

std::vector<Argument> read_arguments() {
    std::vector<Argument> arguments(read<std::uint32_t>());
    for (Argument& argument : arguments) {
        switch (read<char>()) {
            case 'i': argument = read<std::int64_t>(); break;
            case 'r': argument = read<double>(); break;
            default: {
                const bool filled = read<char>() != 0;
                const bool returned = read<char>() != 0;
                const auto bytes = static_cast<std::size_t>(read<std::uint64_t>());
                const Array array{static_cast<std::byte*>(emulator::allocate(bytes)), bytes, returned};
                argument = array;
                const emulator::HostAccess access;
                if (filled) {
                    read_bytes(array.memory, bytes);
                }
            }
        }
    }
    return arguments;
}

std::string make_call(const std::string& name, const std::vector<Argument>& arguments) {
    try {
        Arguments left(arguments);
        calls().at(name)(left);
        return left.empty() ? "" : "the call takes fewer arguments";
    } catch (const std::exception& error) {
        return error.what();
    }
}

void answer() {
    const std::string name = read_text();
    emulator::schedule.seed = read<std::uint64_t>();
    emulator::schedule.poison = read<unsigned char>();
    emulator::schedule.most_blocks = static_cast<std::size_t>(read<std::uint64_t>());
    const bool record = read<char>() != 0;
    const std::vector<Argument> arguments = read_arguments();
    if (record) {
        const Log log;
        write_text(make_call(name, arguments));
        write_text(log.bytes());
    } else {
        write_text(make_call(name, arguments));
        write_text("");
    }
    for (const Argument& argument : arguments) {
        if (const auto* array = std::get_if<Array>(&argument)) {
            {
                const emulator::HostAccess access;
                write(reinterpret_cast<std::uint64_t>(array->memory));
                if (array->returned && !record) {
                    write_bytes(array->memory, array->bytes);
                }
            }
            emulator::release(array->memory);
        }
    }
    std::fflush(stdout);
}

}  // namespace

int main() {
    emulator::callers_stream = stream;
    for (;;) {
        answer();
    }
}
