// The list of composites as a table.
#pragma once

#include "core/graph/builder.h"

namespace gpipe::layers {

const graph::CompositeTypes& composite_types();

}  // namespace gpipe::layers
