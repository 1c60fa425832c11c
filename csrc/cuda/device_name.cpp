// Plain C++, not the source of a kernel: the emulator has no devices to name.
#include <cuda_runtime.h>

#include <string>

#include "pyfast/cuda/device.hpp"

namespace pyfast::cuda {

std::string device_name(int device) {
    cudaDeviceProp found{};
    if (const cudaError_t error = cudaGetDeviceProperties(&found, device); error != cudaSuccess) {
        throw DeviceError(std::string("device: ") + cudaGetErrorString(error));
    }
    return std::string(found.name) + ", compute capability " + std::to_string(found.major) + "." +
           std::to_string(found.minor) + ", " + std::to_string(found.totalGlobalMem >> 30) + " GB";
}

}  // namespace pyfast::cuda
