# pyfast::cuda: the ops on NVIDIA GPUs of compute capability 8.0 or higher. Code for 8.0 and 9.0, and PTX for newer
# ones, which the driver translates. The CUDA runtime is linked in: a program with pyfast::cuda in it starts on a
# machine without a driver, where it learns that there is no device.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
endif()
# 75 and 80-real are such architectures; names like native are nvcc's to judge.
foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
  if(architecture MATCHES "^([0-9]+)" AND CMAKE_MATCH_1 LESS 80)
    message(FATAL_ERROR "pyfast::cuda needs GPUs of compute capability 8.0 or higher, but CMAKE_CUDA_ARCHITECTURES has "
      "${architecture}. The ops on the CPU need no option: leave PYFAST_CUDA off.")
  endif()
endforeach()
option(PYFAST_CUDA_STRICT "Refuse warnings of nvcc, and kernels that keep registers in memory" OFF)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake knows of C++20 in nvcc from 3.26 on, nvcc from 12 on
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()

set(PYFAST_CUDA_SOURCES
  csrc/cuda/device.cu
  csrc/cuda/evidence_graph.cu
  csrc/cuda/graph_rank.cu
  csrc/cuda/hseq_stream.cu
  csrc/cuda/maxsim.cu
  csrc/cuda/pagerank.cu
  csrc/cuda/pools.cu
  csrc/cuda/scan.cu
  csrc/cuda/weighted_degree.cu)
# Where the CPU's sums are to come out to the last bit there is no contraction; gatv2 gains by it.
set_source_files_properties(${PYFAST_CUDA_SOURCES} PROPERTIES COMPILE_OPTIONS --fmad=false)

add_library(pyfast_cuda ${PYFAST_KIND} ${PYFAST_CUDA_SOURCES}
  csrc/cuda/device_name.cpp
  csrc/cuda/gatv2.cu
  csrc/cuda/gatv2_backward.cu)
add_library(pyfast::cuda ALIAS pyfast_cuda)
target_link_libraries(pyfast_cuda PUBLIC pyfast::core PRIVATE CUDA::cudart_static)
set_target_properties(pyfast_cuda PROPERTIES EXPORT_NAME cuda POSITION_INDEPENDENT_CODE ON
  CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY None CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_compile_options(pyfast_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
# For the architectures that the kernels are tuned for. Others have fewer registers for the same code in places.
if(PYFAST_CUDA_STRICT)
  target_compile_options(pyfast_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xptxas -warn-spills,-warn-lmem-usage,-Werror>")
endif()
