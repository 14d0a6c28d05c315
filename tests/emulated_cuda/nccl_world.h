#pragma once

namespace gpipe::emulated {

/// Lets go of everything that waits for a partner. Without Lock.
void abort_all_communicators();

}  // namespace gpipe::emulated
