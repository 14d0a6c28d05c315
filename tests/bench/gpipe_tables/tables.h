// The two halves of gpipe_tables.
#pragma once

namespace gpipe::bench {

/// Prints Table 1: the sizes of the paper, and what fits into 64 MiB a device here. False where a count is not the paper's or
/// an arena is larger than its limit.
bool print_sizes(bool quick);
/// Prints Tables 2 and 3 from measured costs and the simulator, and the speed of two stages on this machine.
void print_speeds(bool quick);

}  // namespace gpipe::bench
