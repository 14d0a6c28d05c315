// What a person reads before a run of the network and its batches; app/plan_page.h has the rest. Pure functions.
#pragma once

#include "app/compose.h"

#include <string>

namespace gpipe::app {

std::string layer_table(const graph::Network& network);
std::string batch_words(const Composition& composition);

}  // namespace gpipe::app
