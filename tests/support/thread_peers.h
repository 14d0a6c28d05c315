// Peers that are threads of one process, for tests of what several processes do.
#pragma once

#include "core/device/peers.h"

#include <functional>
#include <memory>

namespace gpipe::test {

/// Calls body(peers) in `size` threads, each with its rank; what a thread throws is told to the others, and the first that was
/// told comes out.
void with_peers(int size, const std::function<void(const std::shared_ptr<device::Peers>&)>& body, double timeout_s = 60);

}  // namespace gpipe::test
