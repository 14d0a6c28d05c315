# gpipe_room(NAME FOLDERS ... LINKS ...): one static library from all .cpp files of its folders, but app/main.cpp and
# core/device/{no,load}_cuda.cpp (cmake/cuda.cmake).
# Files are globbed with a check at build time, so a new file needs no line anywhere.
function(gpipe_room name)
  cmake_parse_arguments(ROOM "" "" "FOLDERS;LINKS" ${ARGN})
  set(sources)
  foreach(folder ${ROOM_FOLDERS})
    file(GLOB found CONFIGURE_DEPENDS ${folder}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "(app/main|core/device/(no|load)_cuda)\\.cpp$")
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ROOM_LINKS} PRIVATE gpipe_warnings)
endfunction()
