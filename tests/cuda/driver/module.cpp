// The GPU's part of pyfast._native, over the emulator.
#include "arrays.hpp"
#include "core.hpp"
#include "pyfast/cuda/device.hpp"

namespace pyfast::cuda {

std::string device_name(int /*device*/) { return "the emulator, compute capability none"; }

}  // namespace pyfast::cuda

PYBIND11_MODULE(emulated_native, m) {
    m.def("allocate",
          [](std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(emulator::allocate(bytes)); });
    m.def("expect_stream",
          [](std::uintptr_t stream) { emulator::callers_stream = reinterpret_cast<const void*>(stream); });
    pyfast::python::bind_cuda(m);
}
