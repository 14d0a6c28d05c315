// network_bench [--device cpu|cuda] [--precision NAME]... [--quick]: how near whole networks come to what the device can do. A
// JSON object a line: ResNet-50, AmoebaNet-D and Transformer layers, in each precision, as one stage and as two on the same
// device; and for one stage what every node takes beside its floor: the time its `operations` take at the speed measured of a
// large product, or its `bytes` at that of a large sum, whichever is longer, of a backward in each of its halves. Run it on an
// idle machine; network_table.py makes a table of the lines. Exit code 1: a network failed, other than for want of memory, or
// the device has none of the precisions.
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/pipeline/calibrate.h"
#include "core/pipeline/profile.h"
#include "tests/bench/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

using namespace gpipe;

namespace {

using bench::ModelSpec;
using device::Precision;
using nlohmann::ordered_json;
using pipeline::Rematerialize;

struct Subject {
  std::string name;
  ModelSpec spec;
  int64_t batch = 1;  // in 4 micro-batches
};
constexpr int64_t k_micro_batches = 4;

std::vector<Subject> subjects(bool on_gpu, bool quick) {
  const int64_t side = quick ? 32 : on_gpu ? 224 : 64;
  const int64_t filters = quick ? 16 : on_gpu ? 256 : 64, layers = quick ? 3 : 18;
  const int64_t width = quick ? 64 : on_gpu ? 1024 : 256, length = quick ? 32 : on_gpu ? 512 : 128;
  const auto samples = [&](int64_t gpu, int64_t cpu) { return quick ? k_micro_batches : on_gpu ? gpu : cpu; };
  return {
      {"ResNet-50", {"resnet50", {{"classes", 1000}, {"width", quick ? 8 : 64}}, {side, side, 3}, 1000}, samples(256, 16)},
      {fmt::format("AmoebaNet-D ({}, {})", layers, filters),
       {"amoebanet-d", {{"L", layers}, {"D", filters}, {"classes", 1000}}, {side, side, 3}, 1000},
       samples(64, 16)},
      {fmt::format("Transformer, {} layers of width {}", quick ? 2 : 8, width),
       {"transformer-l",
        {{"L", quick ? 2 : 8},
         {"model", width},
         {"ff", 4 * width},
         {"heads", width / 64},
         {"vocabulary", quick ? 128 : 8192},
         {"sequence", length}},
        {length},
        quick ? 128 : 8192},
       samples(64, 16)},
  };
}

pipeline::PipelineOptions options_of(const std::string& device, Precision precision, int64_t partitions) {
  auto options = bench::pipeline_of(partitions, k_micro_batches, Rematerialize::none);
  options.schedule = "1f1b";  // holds the activations of K micro-batches, not of all
  options.device = device;
  options.precision = precision;
  if (device == "cpu") return options;
  options.devices = base::Tree::list();
  for (int64_t i = 0; i < partitions; ++i) options.devices.items().push_back(base::Tree::scalar("0"));
  return options;
}

/// Of one sample, forward and backward; nobody asks for the gradient of the network's own input.
int64_t operations_of(const graph::Network& network) {
  int64_t sum = 0;
  for (const graph::Node& node : network.nodes) {
    sum += node.cost.forward_flops + node.cost.backward_weight_flops;
    if (std::ranges::any_of(node.inputs, [&](int i) { return network.values[static_cast<size_t>(i)].wants_gradient; }))
      sum += node.cost.backward_input_flops;
  }
  return sum;
}

/// Median of some seconds of steps, after one to warm up.
double step_seconds(bench::Trial& trial, bool quick) {
  using Clock = std::chrono::steady_clock;
  trial.step();
  std::vector<double> seconds;
  const auto start = Clock::now();
  do seconds.push_back(trial.step().seconds);
  while (!quick && seconds.size() < 50 && std::chrono::duration<double>(Clock::now() - start).count() < 5);
  return base::median(seconds);
}

ordered_json nodes_of(const graph::Network& network, const pipeline::DevicePeaks& peaks,
                      const std::vector<pipeline::NodeProfile>& profile, int64_t samples) {
  constexpr double no_time = std::numeric_limits<double>::infinity();
  const auto floors_at = [&](const pipeline::DevicePeaks& of) {
    return pipeline::estimated_profile(network, of, samples, bench::k_slots);
  };
  const auto floors = floors_at(peaks);
  const auto operations = floors_at({peaks.convolution_flops, peaks.linear_flops, no_time});
  const auto bytes = floors_at({no_time, no_time, peaks.memory_bytes});
  ordered_json nodes = ordered_json::array();
  for (size_t i = 0; i < network.nodes.size(); ++i) {
    ordered_json node{{"name", network.nodes[i].name}, {"type", network.nodes[i].type}};
    const auto add = [&](const char* part, const auto& seconds_of) {
      node[part] = {{"seconds", seconds_of(profile[i])},
                    {"floor", seconds_of(floors[i])},
                    {"operations", seconds_of(operations[i])},
                    {"bytes", seconds_of(bytes[i])}};
    };
    using Profile = pipeline::NodeProfile;
    add("forward", [](const Profile& of) { return of.forward; });
    add("backward", [](const Profile& of) { return of.backward(); });
    add("pack", [](const Profile& of) { return of.pack; });
    add("update", [](const Profile& of) { return of.update; });
    nodes.push_back(std::move(node));
  }
  return nodes;
}

/// False where something went wrong but the memory.
bool measure(const Subject& subject, const std::string& device, Precision precision, const pipeline::DevicePeaks& peaks,
             bool quick) {
  const graph::Network network = bench::network_of(subject.spec);
  const double peak = std::max(peaks.convolution_flops, peaks.linear_flops);
  bool good = true;
  for (const int64_t partitions : {1, 2}) {
    ordered_json row{{"network", subject.name},
                     {"precision", device::name_of(precision)},
                     {"partitions", partitions},
                     {"micro_batches", k_micro_batches},
                     {"batch_size", subject.batch}};
    try {
      const auto options = options_of(device, precision, partitions);
      const auto plan = pipeline::make_plan(network, {options, subject.batch, bench::k_slots, {}});
      bench::Trial trial(subject.spec, *plan);
      const double rate = static_cast<double>(subject.batch) / step_seconds(trial, quick);
      const double reached = rate * static_cast<double>(operations_of(network));
      row["planned_bytes"] = plan->arena_bytes();
      row["samples_per_second"] = rate;
      row["operations_per_second"] = reached;
      row["peak_operations_per_second"] = peak;
      row["share_of_peak"] = reached / peak / (device == "cpu" ? static_cast<double>(partitions) : 1);
      if (partitions == 1) {
        const auto size = pipeline::profile_batch(plan->micro_batches);
        auto fewer = options;
        fewer.micro_batches = size.micro_batches;
        const auto short_plan = pipeline::make_plan(network, {fewer, size.samples, bench::k_slots, {}});
        bench::Trial profiled(subject.spec, *short_plan);
        const auto profile = pipeline::measure_nodes(profiled.engine(), profiled.batch(),
                                                     quick ? pipeline::ProfileLength{1, 0, 0.1} : pipeline::ProfileLength{});
        row["nodes"] = nodes_of(network, peaks, profile, short_plan->micro_batches.sizes.front());
      }
    } catch (const base::MemoryError& error) { row["error"] = error.what(); } catch (const std::exception& error) {
      row["error"] = error.what();
      good = false;
    }
    fmt::print("{}\n", row.dump());
    std::fflush(stdout);
  }
  return good;
}

int run(const std::string& device, const std::vector<Precision>& precisions, bool quick) {
  const bool on_gpu = device == "cuda";
  const std::string first = on_gpu ? "cuda:0" : device;
  bool measured = false, good = true;
  for (const Precision precision : precisions) {
    try {
      const device::BackendOptions options{.threads = 1, .cores = {}, .precision = precision};
      const auto peaks = pipeline::measure_peaks(first, options);
      const device::DeviceInfo info = device::open_backend(first, options)->info();
      fmt::print("{}\n", ordered_json{{"device", info.name},
                                      {"library", info.library},
                                      {"precision", device::name_of(precision)},
                                      {"convolution_operations_per_second", peaks.convolution_flops},
                                      {"linear_operations_per_second", peaks.linear_flops},
                                      {"memory_bytes_per_second", peaks.memory_bytes}}
                             .dump());
      for (const Subject& subject : subjects(on_gpu, quick)) good &= measure(subject, device, precision, peaks, quick);
      measured = true;
    } catch (const std::exception& error) {
      fmt::print("{}\n", ordered_json{{"precision", device::name_of(precision)}, {"error", error.what()}}.dump());
    }
  }
  return measured && good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string device = "cpu";
  std::vector<Precision> precisions;
  bool quick = false;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string next = i + 1 < words.size() ? words[i + 1] : "";
    const auto name = std::find(device::k_precision_names.begin(), device::k_precision_names.end(), next);
    if (words[i] == "--quick") {
      quick = true;
    } else if (words[i] == "--device" && (next == "cpu" || next == "cuda")) {
      device = words[++i];
    } else if (words[i] == "--precision" && name != device::k_precision_names.end()) {
      precisions.push_back(static_cast<Precision>(name - device::k_precision_names.begin()));
      ++i;
    } else {
      fmt::print(stderr, "usage: network_bench [--device cpu|cuda] [--precision {}]... [--quick], found {}\n",
                 fmt::join(device::k_precision_names, "|"), words[i]);
      return 2;
    }
  }
  if (precisions.empty()) precisions = {Precision::f32, Precision::tf32, Precision::bf16};
  return run(device, precisions, quick);
}
