#include "pyfast/cuda/device.hpp"

#include "memory.hpp"

namespace pyfast::python {

void bind_cuda(py::module_& parent) {
    py::module_ m = parent.def_submodule("cuda", "The ops on a GPU, of device memory. Called by pyfast.ops.");
    py::register_exception<pyfast::cuda::DeviceError>(m, "DeviceError", PyExc_RuntimeError);
    // (the number of devices, the reason if there are none)
    m.def("devices", [] {
        const pyfast::cuda::Devices found = pyfast::cuda::devices();
        return std::make_tuple(found.count, found.problem);
    });
    m.def("device_name", &pyfast::cuda::device_name, py::arg("device"));
    m.def("raise_faults", &pyfast::cuda::raise, py::arg("status"));
    cuda::bind_evidence_graph(m);
    cuda::bind_gatv2(m);
    cuda::bind_graph_rank(m);
    cuda::bind_hseq_stream(m);
    cuda::bind_maxsim(m);
    cuda::bind_pagerank(m);
    cuda::bind_weighted_degree(m);
}

}  // namespace pyfast::python
