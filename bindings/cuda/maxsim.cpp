#include "pyfast/cuda/maxsim.hpp"

#include "memory.hpp"
#include "pyfast/error.hpp"

namespace pyfast::python::cuda {

using pyfast::cuda::Precision;

void bind_maxsim(py::module_& m) {
    m.def("maxsim_workspace", &pyfast::cuda::maxsim_workspace, Released(), py::arg("query_tokens"),
          py::arg("dimensions"));
    m.def(
        "maxsim",
        [](const Memory& queries, const Memory& query_offsets, const Memory& tokens,
           const std::optional<Memory>& scales, const Memory& token_offsets, const Memory& pairs,
           std::int64_t dimensions, const std::string& precision, const Memory& scores, const QueueMemory& on) {
            if (precision != "float32" && precision != "bf16") {
                throw Error("precision: '" + precision + "' is neither 'float32' nor 'bf16'");
            }
            TokenVectors documents;
            documents.offsets = at<const std::int64_t>(token_offsets);
            if (scales) {
                documents.codes = at<const std::int8_t>(tokens);
                documents.scales = at<const float>(*scales);
            } else {
                documents.numbers = at<const float>(tokens);
            }
            pyfast::cuda::maxsim(at<const float>(queries), at<const std::int64_t>(query_offsets), documents,
                                 at<const std::int64_t>(pairs), dimensions,
                                 precision == "bf16" ? Precision::bfloat16 : Precision::float32, at<float>(scores),
                                 queue(on));
        },
        Released(), py::arg("queries"), py::arg("query_offsets"), py::arg("tokens"), py::arg("scales"),
        py::arg("token_offsets"), py::arg("pairs"), py::arg("dimensions"), py::arg("precision"), py::arg("scores"),
        py::arg("queue"));
}

}  // namespace pyfast::python::cuda
