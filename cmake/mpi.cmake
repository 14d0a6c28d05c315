# Runs of several processes: libgpipe_mpi.so, which gpipe-train loads when a launcher of MPI started it (core/device/load_peers.cpp).
set(GPIPE_MPI AUTO CACHE STRING "AUTO: build for several processes if Open MPI is found; ON: it must be; OFF: do not")

if(GPIPE_MPI)
  set(MPI_CXX_SKIP_MPICXX TRUE)  # its C++ bindings are none of ours
  find_package(MPI QUIET COMPONENTS CXX)
  if(NOT MPI_CXX_FOUND AND NOT GPIPE_MPI STREQUAL "AUTO")
    message(FATAL_ERROR "GPIPE_MPI=${GPIPE_MPI}, but Open MPI is missing (packages libopenmpi-dev, openmpi-bin)")
  elseif(NOT MPI_CXX_FOUND)
    message(STATUS "built without MPI: runs have one process")
  else()
    add_library(gpipe_mpi_module MODULE core/device/mpi/peers.cpp)
    set_target_properties(gpipe_mpi_module PROPERTIES OUTPUT_NAME gpipe_mpi LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    target_include_directories(gpipe_mpi_module PRIVATE ${CMAKE_SOURCE_DIR})
    target_include_directories(gpipe_mpi_module SYSTEM PRIVATE ${MPI_CXX_INCLUDE_DIRS})
    target_link_libraries(gpipe_mpi_module PRIVATE fmt::fmt ${MPI_CXX_LIBRARIES} gpipe_warnings)
  endif()
endif()

# What a program needs that may load it: base and device are the program's.
function(gpipe_may_load_mpi program)
  set_target_properties(${program} PROPERTIES ENABLE_EXPORTS ON)
  if(TARGET gpipe_mpi_module)
    add_dependencies(${program} gpipe_mpi_module)
  endif()
endfunction()
