# The CUDA half of halfbyte: built where a CUDA compiler is found, replaced by a refusal where not. Included after the rooms.

find_program(HALFBYTE_NVCC nvcc HINTS /usr/local/cuda/bin $ENV{CUDA_HOME}/bin)
if(HALFBYTE_NVCC AND NOT HALFBYTE_SANITIZE)
  option(HALFBYTE_CUDA "Build the CUDA kernels" ON)
else()
  option(HALFBYTE_CUDA "Build the CUDA kernels" OFF)
endif()
set(HALFBYTE_CUDA_ARCHS "80;90a;100a;120a" CACHE STRING "GPU architectures that the CUDA kernels are compiled for")

if(HALFBYTE_CUDA)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND HALFBYTE_NVCC)
    set(CMAKE_CUDA_COMPILER ${HALFBYTE_NVCC})
  endif()
  # CMake 3.25 knows neither all of these architectures nor what nvcc 13 can do: both are given as flags below.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
endif()

# halfbyte_cuda_sources(TARGET FILE...): .cu files compiled for all architectures. Products and sums are rounded one by one
# there too (-fmad=false), as the codecs have it.
function(halfbyte_cuda_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  set(flags -fmad=false)
  foreach(arch ${HALFBYTE_CUDA_ARCHS})
    list(APPEND flags -gencode=arch=compute_${arch},code=sm_${arch})
  endforeach()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${flags} -Xcompiler=-Wall,-Wextra>)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# Device code and its launches, or what takes their place. The checks before a launch are part of halfbyte_ops either way.
if(HALFBYTE_CUDA)
  file(GLOB_RECURSE device_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/*.cu
       ${PROJECT_SOURCE_DIR}/src/ops/*.cu)
  add_library(halfbyte_cuda STATIC ${PROJECT_SOURCE_DIR}/src/device/cuda/status.cc
                                   ${PROJECT_SOURCE_DIR}/src/device/cuda/library.cc
                                   ${PROJECT_SOURCE_DIR}/src/device/cuda/cublas.cc)
  halfbyte_cuda_sources(halfbyte_cuda ${device_sources})
  target_link_libraries(halfbyte_cuda PUBLIC halfbyte_formats CUDA::cudart_static ${CMAKE_DL_LIBS})
  target_compile_definitions(halfbyte_cuda PUBLIC HALFBYTE_CUDA=1)
else()
  add_library(halfbyte_cuda STATIC ${PROJECT_SOURCE_DIR}/src/device/cuda/status.cc
                                   ${PROJECT_SOURCE_DIR}/src/device/cuda/no_cuda.cc)
  target_link_libraries(halfbyte_cuda PUBLIC halfbyte_formats)
endif()
target_include_directories(halfbyte_cuda PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(halfbyte_ops PUBLIC halfbyte_cuda)

# The model on a GPU, or a refusal.
if(HALFBYTE_CUDA)
  halfbyte_room(gpu LINK halfbyte_model)
else()
  add_library(halfbyte_gpu STATIC ${PROJECT_SOURCE_DIR}/src/gpu/no_cuda/cuda_engine.cc)
  target_link_libraries(halfbyte_gpu PUBLIC halfbyte_model)
endif()

# Programs for a machine with a GPU, made to be built here and run there: static CUDA runtime, static libstdc++, fmt in its
# headers, nothing else. build/gpu/{gpu_test,gpu_matmul_test,ladder,bench_ops,libhalfbyte_cuda_c.so}
if(HALFBYTE_CUDA AND (HALFBYTE_TESTS OR HALFBYTE_BENCH))
  set(source ${PROJECT_SOURCE_DIR}/src)
  set(bench ${PROJECT_SOURCE_DIR}/bench)
  add_library(halfbyte_gpu_common STATIC
    ${source}/core/thread_pool.cc ${source}/formats/formats.cc ${source}/formats/quantized_tensor.cc
    ${source}/ops/quantize/reference.cc ${source}/ops/quantize/double_quant.cc ${source}/ops/dequantize/reference.cc
    ${source}/ops/dequantize/cuda.cc ${source}/ops/quantize/cuda.cc ${source}/device/cuda/status.cc
    ${source}/device/cuda/library.cc ${source}/device/cuda/cublas.cc
    ${source}/ops/fused_activation/cuda.cc ${source}/ops/fused_activation/fused_activation.cc
    ${source}/ops/fused_activation/reference.cc ${source}/ops/rms_norm/cpu.cc ${source}/ops/transform_input/cpu.cc
    ${source}/ops/matmul_nvfp4_native/check.cc ${source}/ops/matmul_nvfp4_native/cuda.cc ${source}/formats/swizzle.cc
    ${source}/ops/matmul_w4a16/cuda.cc ${source}/ops/matmul_w4a16/pack.cc ${source}/ops/matmul_w4a16/reference.cc
    ${bench}/gpu/harness.cc)
  halfbyte_cuda_sources(halfbyte_gpu_common ${bench}/gpu/kernels.cu)
  target_include_directories(halfbyte_gpu_common PUBLIC ${PROJECT_SOURCE_DIR} ${source} ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(halfbyte_gpu_common PUBLIC FMT_HEADER_ONLY)
  target_link_libraries(halfbyte_gpu_common PUBLIC CUDA::cudart_static Threads::Threads)
  # The objects alone: halfbyte_cuda itself would bring the shared libfmt along.
  target_link_libraries(halfbyte_gpu_common PUBLIC $<TARGET_FILE:halfbyte_cuda>)
  add_dependencies(halfbyte_gpu_common halfbyte_cuda)
  target_link_options(halfbyte_gpu_common PUBLIC -static-libstdc++ -static-libgcc)

  function(halfbyte_gpu_program name)
    add_executable(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE halfbyte_gpu_common)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/gpu)
  endfunction()
  if(HALFBYTE_TESTS)
    halfbyte_gpu_program(gpu_test ${PROJECT_SOURCE_DIR}/tests/gpu/gpu_test.cc)
    halfbyte_gpu_program(gpu_matmul_test ${PROJECT_SOURCE_DIR}/tests/gpu/matmul_test.cc)
    halfbyte_gpu_program(gpu_fused_activation_test ${PROJECT_SOURCE_DIR}/tests/gpu/fused_activation_test.cc)
    halfbyte_gpu_program(gpu_native_nvfp4_test ${PROJECT_SOURCE_DIR}/tests/gpu/native_nvfp4_test.cc)
  endif()
  halfbyte_gpu_program(ladder ${bench}/ladder/ladder.cc)
  halfbyte_cuda_sources(ladder ${bench}/ladder/variants.cu)
  halfbyte_gpu_program(bench_ops ${bench}/gpu/bench_ops.cc)
  halfbyte_cuda_sources(bench_ops ${bench}/gpu/bytes_kernels.cu)
  halfbyte_gpu_program(bench_fused ${bench}/gpu/bench_fused.cc)
  add_library(halfbyte_cuda_c SHARED ${bench}/gpu/capi.cc)
  target_link_libraries(halfbyte_cuda_c PRIVATE halfbyte_gpu_common)
  set_target_properties(halfbyte_cuda_c PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/gpu)
endif()
