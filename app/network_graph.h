// A network as a graph for Graphviz: a box a layer, and around them a frame for every block, composite and turn of a repeat.
// Pure functions; any thread.
#pragma once

#include "core/graph/network.h"

#include <cstddef>
#include <string>

namespace gpipe::app {

/// Levels of names ("stage.0.conv2d_1" has three) in a network; at least 1.
int levels_of(const graph::Network& network);

/// How many boxes a drawing has in which what lies below `depth` levels of names is one box for each block.
size_t boxes_at(const graph::Network& network, int depth);

/// The text of such a drawing in the DOT language. Labels have type, output shape and parameters.
std::string dot_of(const graph::Network& network, const std::string& title, int depth);

}  // namespace gpipe::app
