// A run in several processes, each with some of the pipeline's devices: what process 0 tells the others, and what they do.
//
// Process 0 is the run as the user sees it: it reads profiles, measures, prints and writes. The others have the same
// configuration and data, take from it whatever might be found otherwise there, and run their stages.
#pragma once

#include "app/session.h"
#include "core/device/peers.h"

namespace gpipe::app {

/// The configuration of a run in these processes. ConfigError for what only one process does, and where the processes were given
/// different settings.
void require_shared_run(const Command& command, const RunConfig& config, device::Peers& peers);

/// What a plan depends on besides the configuration: told by process 0, whose composition is complete, taken by the others
/// before they plan.
struct Findings {
  pipeline::DevicePeaks peaks;
  int64_t device_memory = 0;
  std::vector<pipeline::NodeProfile> profile;
  device::Algorithms::Choices algorithms;
};
void tell_findings(const Composition& composition, device::Peers& peers);
Findings hear_findings(device::Peers& peers);

/// Whether a launcher gave the processes cores of their own, not the same to all.
bool have_cores_apart(device::Peers& peers);

/// Whether all processes came to the same plan, with as many samples; ConfigError where not.
void check_same_plan(const pipeline::Plan& plan, int64_t samples, device::Peers& peers);

/// Tells the other processes, if there are some, what is being thrown here.
void tell_failure(device::Peers* peers) noexcept;

/// The whole run of a process other than 0.
base::ExitCode follow(const Command& command, const Composition& composition, const train::Transfer* transfer);

}  // namespace gpipe::app
