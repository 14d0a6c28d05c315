// Gradients of a backend against central differences of its own forward passes.
#pragma once

#include <string>

namespace gpipe::test {

/// Walks the list of layers: of each type, in every case of other arguments, some elements of each input and parameter. What
/// differs is a failure of the test, and so is a type of which hardly an element could be compared.
void check_gradients(const std::string& device);

}  // namespace gpipe::test
