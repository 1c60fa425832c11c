// maxsim, over numbers and over codes.
#include "op_calls.hpp"
#include "pyfast/cuda/maxsim.hpp"

namespace {

using namespace driver;
using namespace pyfast::cuda;

void maxsim_workspace_(Arguments& a) {
    const auto tokens = a.integer<std::size_t>();
    const auto dimensions = a.integer<std::size_t>();
    give(a, maxsim_workspace(tokens, dimensions));
}

template <bool coded, Precision precision = Precision::float32>
void maxsim_(Arguments& a) {
    const auto queries = a.array<const float>();
    const auto query_offsets = a.array<const std::int64_t>();
    pyfast::TokenVectors documents;
    if constexpr (coded) {
        documents.codes = a.array<const std::int8_t>();
    } else {
        documents.numbers = a.array<const float>();
    }
    documents.scales = a.array<const float>();
    documents.offsets = a.array<const std::int64_t>();
    const auto pairs = a.array<const std::int64_t>();
    const std::int64_t dimensions = a.integer();
    const auto scores = a.array<float>();
    maxsim(queries, query_offsets, documents, pairs, dimensions, precision, scores, queue(a));
}

}  // namespace

void driver::add_maxsim_calls(Calls& all) {
    all["maxsim"] = maxsim_<false>;
    all["maxsim_bfloat16"] = maxsim_<false, Precision::bfloat16>;
    all["maxsim_codes"] = maxsim_<true>;
    all["maxsim_codes_workspace"] = maxsim_workspace_;
    all["maxsim_workspace"] = maxsim_workspace_;
}
