# The CUDA leaf, core/device/cuda. Defines GPIPE_LEAF, the library that programs link for open_cuda and its kin: gpipe_load_cuda,
# which loads the leaf when it is wanted, or gpipe_no_cuda where CUDA is not wanted or not found. All are object libraries,
# because gpipe_core calls into them and they into gpipe_core.
set(GPIPE_CUDA AUTO CACHE STRING "AUTO: build for NVIDIA GPUs if nvcc, cuBLAS, cuDNN and NCCL are found; ON: they must be; OFF: do not")
set(GPIPE_CUDA_ARCHITECTURES "80;90" CACHE STRING "Compute capabilities to build kernels for: A100 and H100/H200 by default")

add_library(gpipe_no_cuda OBJECT core/device/no_cuda.cpp)
target_link_libraries(gpipe_no_cuda PUBLIC gpipe_core PRIVATE gpipe_warnings)
set(GPIPE_LEAF gpipe_no_cuda)

# What keeps the CUDA leaf from being built, or nothing.
function(gpipe_find_cuda missing)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(ENV{PATH} "$ENV{PATH}:/usr/local/cuda/bin")
  endif()
  check_language(CUDA)
  find_package(CUDAToolkit QUIET)
  find_library(GPIPE_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(GPIPE_CUDNN_INCLUDE cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(GPIPE_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(GPIPE_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NOT CMAKE_CUDA_COMPILER)
    set(${missing} "nvcc" PARENT_SCOPE)
  elseif(NOT TARGET CUDA::cudart_static OR NOT TARGET CUDA::cublasLt)
    set(${missing} "the CUDA toolkit's libraries" PARENT_SCOPE)
  elseif(NOT GPIPE_CUDNN_LIBRARY OR NOT GPIPE_CUDNN_INCLUDE)
    set(${missing} "cuDNN" PARENT_SCOPE)
  elseif(NOT GPIPE_NCCL_LIBRARY OR NOT GPIPE_NCCL_INCLUDE)
    set(${missing} "NCCL" PARENT_SCOPE)
  else()
    set(${missing} "" PARENT_SCOPE)
  endif()
endfunction()

if(GPIPE_CUDA)
  gpipe_find_cuda(missing)
  if(missing AND NOT GPIPE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "GPIPE_CUDA=${GPIPE_CUDA}, but ${missing} is missing")
  elseif(missing)
    message(STATUS "built without CUDA: ${missing} is missing")
  else()
    set(CMAKE_CUDA_ARCHITECTURES ${GPIPE_CUDA_ARCHITECTURES})
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
    enable_language(CUDA)
    # /usr/include as an -isystem would come before GCC's own headers; CMake knows to leave it out for C++ alone.
    list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc has it
    find_package(CUDAToolkit REQUIRED)
    file(GLOB cuda_sources CONFIGURE_DEPENDS core/device/cuda/*.cpp core/device/cuda/*.cu)
    add_library(gpipe_cuda OBJECT ${cuda_sources})
    target_include_directories(gpipe_cuda SYSTEM PUBLIC ${GPIPE_CUDNN_INCLUDE} ${GPIPE_NCCL_INCLUDE})
    set(cuda_libraries CUDA::cudart_static CUDA::cublas CUDA::cublasLt ${GPIPE_CUDNN_LIBRARY} ${GPIPE_NCCL_LIBRARY})
    target_link_libraries(gpipe_cuda PUBLIC gpipe_core ${cuda_libraries} PRIVATE gpipe_warnings)
    # --fmad=false: a * b + c is rounded twice, as on the CPU, so that functors give the same bits on both; what kernels of ours
    # do waits for memory, not for arithmetic. FMT_USE_CONSTEXPR: fmt 9 turns constexpr off for nvcc, which C++20 then trips over.
    target_compile_options(gpipe_cuda PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda;--expt-relaxed-constexpr;--fmad=false;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
    target_compile_definitions(gpipe_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>")
    # Programs load it when a GPU is first asked for: libgpipe_cuda.so, which finds base and tensor in the program.
    set_target_properties(gpipe_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
    add_library(gpipe_cuda_module MODULE $<TARGET_OBJECTS:gpipe_cuda>)
    set_target_properties(gpipe_cuda_module PROPERTIES OUTPUT_NAME gpipe_cuda LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
      LINKER_LANGUAGE CXX)
    target_link_options(gpipe_cuda_module PRIVATE -Wl,-Bsymbolic-functions)  # open_cuda is the program's loader, too
    target_link_libraries(gpipe_cuda_module PRIVATE ${cuda_libraries})
    add_library(gpipe_load_cuda OBJECT core/device/load_cuda.cpp)
    target_link_libraries(gpipe_load_cuda PUBLIC gpipe_core ${CMAKE_DL_LIBS} PRIVATE gpipe_warnings)
    target_link_options(gpipe_load_cuda INTERFACE -rdynamic "-Wl,-rpath,${CMAKE_BINARY_DIR}")
    set(GPIPE_LEAF gpipe_load_cuda)
  endif()
endif()
