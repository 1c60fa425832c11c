// Stands in for libFuzzer where there is none: inputs drawn with a generator of its own, each by its number.
//
//     pyfast_fuzz INPUTS [OP [FIRST]]    that many inputs for one op, or for "all", from number FIRST on
//
// An input that ends the program is named at its end (give the sanitizers abort_on_error=1).
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

#include "fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

const char* current_op = "";
unsigned current_input = 0;

void name_input(int) {
    std::fprintf(stderr, "to see it again: pyfast_fuzz 1 %s %u\n", current_op, current_input);
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
}

std::vector<std::uint8_t> draw(std::size_t op, unsigned number) {
    std::mt19937 random(number * 1000003U + static_cast<unsigned>(op));
    std::vector<std::uint8_t> bytes(1 + random() % 1024);
    for (std::uint8_t& byte : bytes) {
        byte = static_cast<std::uint8_t>(random() >> 8);
    }
    bytes.front() = static_cast<std::uint8_t>(op);
    return bytes;
}

}  // namespace

int main(int count, char** arguments) {
    const auto number = [&](int place) {
        return count > place ? static_cast<unsigned>(std::strtoul(arguments[place], nullptr, 10)) : 0U;
    };
    const unsigned inputs = count > 1 ? number(1) : 1000;
    std::signal(SIGABRT, name_input);
    for (std::size_t op = 0; op < fuzz::targets().size(); ++op) {
        const fuzz::Target& target = fuzz::targets()[op];
        if (count > 2 && std::string_view(arguments[2]) != "all" &&
            std::string_view(arguments[2]) != target.name) {
            continue;
        }
        current_op = target.name;
        for (current_input = number(3); current_input < number(3) + inputs; ++current_input) {
            const std::vector<std::uint8_t> bytes = draw(op, current_input);
            LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
        }
        std::printf("%s: %lld results, %lld refusals\n", target.name, static_cast<long long>(target.results),
                    static_cast<long long>(target.refusals));
    }
    return 0;
}
