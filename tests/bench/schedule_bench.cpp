// What planning a schedule takes, as JSON lines: making rows, checking them, simulating them, and the memory of rows made on the
// way. schedule_bench [make|simulate]...
#include "core/pipeline/simulate.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

using namespace gpipe;

namespace {

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The most this process ever had; grows only.
int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * int64_t{1024};
}

pipeline::ScheduleRequest request(const pipeline::ScheduleType& type, int devices, int micro_batches) {
  pipeline::ScheduleRequest r;
  r.devices = devices;
  r.micro_batches = micro_batches;
  r.chunks = type.chunks == 0 ? 2 : type.chunks;
  return r;
}

pipeline::SimulationInput equal_costs(const pipeline::ScheduleRequest& r) {
  pipeline::SimulationInput input;
  input.costs.assign(static_cast<size_t>(r.devices * r.chunks), {1, 1, 1, 0});
  input.link.latency = 0.1;
  return input;
}

void simulate() {
  for (const int micro_batches : {1000, 10000})  // the smaller first, for the peak
    for (const auto& type : pipeline::schedule_types()) {
      if (type.stream == nullptr) continue;
      const auto r = request(type, 1000, micro_batches);
      const auto input = equal_costs(r);
      pipeline::Simulation result;
      const double seconds = seconds_of([&] { result = simulate_streams(r, type, input); });
      const double tasks = (type.splits_backward ? 3.0 : 2.0) * r.devices * r.chunks * r.micro_batches;
      fmt::print(
          "{{\"bench\": \"simulate\", \"schedule\": \"{}\", \"K\": {}, \"M\": {}, \"seconds\": {:.3f}, \"tasks_per_second\": "
          "{:.3g}, "
          "\"bubble_rate\": {:.4f}, \"peak_resident_bytes\": {}}}\n",
          type.name, r.devices, r.micro_batches, seconds, tasks / seconds, result.bubble_rate, peak_resident_bytes());
    }
}

void make() {
  for (const auto& type : pipeline::schedule_types()) {
    const auto r = request(type, 64, 256);
    pipeline::Schedule schedule;
    const double making = seconds_of([&] { schedule = type.make(r); });
    const double checking = seconds_of([&] { pipeline::check_schedule(schedule); });
    size_t tasks = 0;
    for (const auto& row : schedule.rows) tasks += row.size();
    fmt::print(
        "{{\"bench\": \"make\", \"schedule\": \"{}\", \"K\": 64, \"M\": 256, \"tasks\": {}, \"make_seconds\": {:.5f}, "
        "\"check_seconds\": {:.5f}}}\n",
        type.name, tasks, making, checking);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  const auto asked = [&](const char* name) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  try {
    if (asked("simulate")) simulate();
    if (asked("make")) make();
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
