// The table of the ops, and what libFuzzer calls: the first byte of an input chooses the op.
#include <cstddef>
#include <cstdint>

#include "fuzz_input.hpp"
#include "fuzz_ops.hpp"
#include "pyfast/error.hpp"

namespace fuzz {

namespace {

Target all[] = {
    {"betweenness", fuzz_betweenness},
    {"bridge_expand", fuzz_bridge_expand},
    {"bridge_rank", fuzz_bridge_rank},
    {"bridge_select", fuzz_bridge_select},
    {"cite", fuzz_cite},
    {"eigenvector", fuzz_eigenvector},
    {"evidence_graph", fuzz_evidence_graph},
    {"fuse", fuzz_fuse},
    {"graph_rank", fuzz_graph_rank},
    {"narrate", fuzz_narrate},
    {"pagerank", fuzz_pagerank},
    {"prune", fuzz_prune},
    {"weighted_degree", fuzz_weighted_degree},
};

}  // namespace

std::span<Target> targets() { return all; }

}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input in({data, size});
    fuzz::Target& chosen = fuzz::targets()[static_cast<std::size_t>(in.below(std::ssize(fuzz::targets())))];
    try {
        chosen.run(in);
        ++chosen.results;
    } catch (const pyfast::Error&) {
        ++chosen.refusals;
    }
    return 0;
}
