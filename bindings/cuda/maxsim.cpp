#include "pyfast/cuda/maxsim.hpp"

#include "memory.hpp"

namespace pyfast::python::cuda {

void bind_maxsim(py::module_& m) {
    m.def("maxsim_workspace", &pyfast::cuda::maxsim_workspace, Released(), py::arg("query_tokens"),
          py::arg("dimensions"));
    m.def(
        "maxsim",
        [](const Memory& queries, const Memory& query_offsets, const Memory& tokens,
           const std::optional<Memory>& scales, const Memory& token_offsets, const Memory& pairs,
           std::int64_t dimensions, const Memory& scores, const QueueMemory& on) {
            TokenVectors documents;
            documents.offsets = at<const std::int64_t>(token_offsets);
            if (scales) {
                documents.codes = at<const std::int8_t>(tokens);
                documents.scales = at<const float>(*scales);
            } else {
                documents.numbers = at<const float>(tokens);
            }
            pyfast::cuda::maxsim(at<const float>(queries), at<const std::int64_t>(query_offsets), documents,
                                 at<const std::int64_t>(pairs), dimensions, at<float>(scores), queue(on));
        },
        Released(), py::arg("queries"), py::arg("query_offsets"), py::arg("tokens"), py::arg("scales"),
        py::arg("token_offsets"), py::arg("pairs"), py::arg("dimensions"), py::arg("scores"), py::arg("queue"));
}

}  // namespace pyfast::python::cuda
