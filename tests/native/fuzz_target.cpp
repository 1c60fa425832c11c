// The table of the ops, and what libFuzzer calls: the first byte of an input chooses the op, or the environment
// variable PYFAST_FUZZ_OP names it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzz_input.hpp"
#include "fuzz_ops.hpp"
#include "pyfast/error.hpp"

namespace fuzz {

namespace {

Target all[] = {
    {"betweenness", fuzz_betweenness},
    {"bm25", fuzz_bm25},
    {"bridge_expand", fuzz_bridge_expand},
    {"bridge_rank", fuzz_bridge_rank},
    {"bridge_select", fuzz_bridge_select},
    {"cite", fuzz_cite},
    {"count_words", fuzz_count_words},
    {"eigenvector", fuzz_eigenvector},
    {"evidence_graph", fuzz_evidence_graph},
    {"fuse", fuzz_fuse},
    {"gatv2", fuzz_gatv2},
    {"graph_rank", fuzz_graph_rank},
    {"hseq_stream", fuzz_hseq_stream},
    {"maxsim", fuzz_maxsim},
    {"narrate", fuzz_narrate},
    {"pagerank", fuzz_pagerank},
    {"prune", fuzz_prune},
    {"select_sentences", fuzz_select_sentences},
    {"weighted_degree", fuzz_weighted_degree},
};

}  // namespace

std::span<Target> targets() { return all; }

}  // namespace fuzz

namespace {

// The op that the environment names; null: none.
fuzz::Target* named() {
    const char* const name = std::getenv("PYFAST_FUZZ_OP");
    if (name == nullptr) {
        return nullptr;
    }
    for (fuzz::Target& target : fuzz::targets()) {
        if (std::string_view(name) == target.name) {
            return &target;
        }
    }
    fuzz::fail(__FILE__, __LINE__, "PYFAST_FUZZ_OP names an op");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static fuzz::Target* const only = named();
    fuzz::Input in({data, size});
    const auto place = only != nullptr ? 0 : in.below(std::ssize(fuzz::targets()));
    fuzz::Target& chosen = only != nullptr ? *only : fuzz::targets()[static_cast<std::size_t>(place)];
    try {
        chosen.run(in);
        ++chosen.results;
    } catch (const pyfast::Error&) {
        ++chosen.refusals;
    }
    return 0;
}
