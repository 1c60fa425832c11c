#include "pyfast/maxsim.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "arrays.hpp"

namespace pyfast::python {

namespace {

constexpr std::array<std::pair<const char*, MaxsimLevel>, 5> levels{{
    {"portable", MaxsimLevel::portable},
    {"avx2", MaxsimLevel::avx2},
    {"avx512", MaxsimLevel::avx512},
    {"avx512_vnni", MaxsimLevel::avx512_vnni},
    {"best", MaxsimLevel::best},
}};

MaxsimLevel level_of(const std::string& name) {
    const auto* const found =
        std::find_if(levels.begin(), levels.end(), [&](const auto& level) { return name == level.first; });
    if (found == levels.end()) {
        throw Error("level: '" + name + "' is none of 'portable', 'avx2', 'avx512', 'avx512_vnni', 'best'");
    }
    return found->second;
}

}  // namespace

void bind_maxsim(py::module_& m) {
    // `tokens` are float32, or int8 with `scales`.
    m.def(
        "maxsim",
        [](const py::array& queries, const py::array& query_offsets, const py::array& tokens,
           const py::array& scales, const py::array& token_offsets, const py::array& pairs,
           std::int64_t dimensions, int threads, const std::string& level) {
            TokenVectors documents;
            if (tokens.dtype().equal(py::dtype::of<std::int8_t>())) {
                documents.codes = view<std::int8_t>(tokens, "tokens");
            } else {
                documents.numbers = view<float>(tokens, "tokens");
            }
            documents.scales = view<float>(scales, "scales");
            documents.offsets = view<std::int64_t>(token_offsets, "token_offsets");
            const auto asked = view<float>(queries, "queries");
            const auto asked_offsets = view<std::int64_t>(query_offsets, "query_offsets");
            const auto compared = view<std::int64_t>(pairs, "pairs");
            const MaxsimOptions options{dimensions, threads, level_of(level)};
            auto [result, scores] = fresh<float>(compared.size() / 2);
            {
                const py::gil_scoped_release release;
                maxsim(asked, asked_offsets, documents, compared, options, scores);
            }
            return result;
        },
        py::arg("queries"), py::arg("query_offsets"), py::arg("tokens"), py::arg("scales"),
        py::arg("token_offsets"), py::arg("pairs"), py::arg("dimensions"), py::arg("threads"), py::arg("level"));
    m.def("maxsim_level", [] {
        const MaxsimLevel best = maxsim_level();
        return std::find_if(levels.begin(), levels.end(), [&](const auto& each) { return each.second == best; })
            ->first;
    });
}

}  // namespace pyfast::python
