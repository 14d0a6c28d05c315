# Warnings are errors; sanitizers stop at the first finding. Linked privately by every target of ours.
add_library(gpipe_warnings INTERFACE)
# (Of C++ only: what nvcc warns of is set in cmake/cuda.cmake.)
target_compile_options(gpipe_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion;-Wno-missing-field-initializers;-Werror>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(gpipe_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)  # GCC 12 sees overlaps in `"a" + string` (its bug 105651)
endif()

# Loops over tensors are written plainly and left to the compiler; the instruction set is chosen by the machine that
# builds, as run.sh builds where it runs. No -ffast-math: the same sums in the same order, everywhere.
# (-fno-math-errno, -fno-trapping-math: sqrt and comparisons may become vector code; no result changes.)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-fno-math-errno;-fno-trapping-math>")
option(GPIPE_NATIVE "Use the instruction set of the building machine" ON)
if(GPIPE_NATIVE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-march=native>)
endif()

if(GPIPE_SANITIZE)
  target_compile_options(gpipe_warnings INTERFACE -Wno-maybe-uninitialized)  # the instrumentation hides from GCC what is set
endif()
if(GPIPE_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(GPIPE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()
