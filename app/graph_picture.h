// A graph in the DOT language, drawn by Graphviz in this process. The only file that knows Graphviz. Main thread: the library
// keeps state of its own.
#pragma once

#include <string>

namespace gpipe::app {

/// The picture as SVG. Throws ConfigError with Graphviz's own words when it cannot draw it.
std::string svg_of_dot(const std::string& dot);

}  // namespace gpipe::app
