// What all activation layers are: element by element, shape unchanged, one op of the device.
#pragma once

#include "layers/support.h"

#include <memory>

namespace gpipe::layers {

/// `flops`: of one element, roughly.
std::unique_ptr<Layer> activation_layer(const device::ActivationSpec& spec, int64_t flops);

/// make() of an activation without arguments.
template <device::ActivationSpec::Kind kind, int64_t flops>
std::unique_ptr<Layer> make_activation(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  return read_no_arguments(arguments, path, problems) ? activation_layer({kind}, flops) : nullptr;
}

}  // namespace gpipe::layers
