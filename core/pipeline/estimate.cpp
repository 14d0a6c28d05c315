#include "core/pipeline/estimate.h"

#include "core/base/error.h"

#include <algorithm>

namespace gpipe::pipeline {

std::vector<NodeProfile> estimated_profile(const graph::Network& network, const DevicePeaks& peaks, int64_t samples,
                                           int optimizer_slots) {
  std::vector<NodeProfile> profile;
  for (const graph::Node& node : network.nodes) {
    const auto bytes_of = [&](int index) {
      const graph::Value& value = network.values[static_cast<size_t>(index)];
      return static_cast<double>(value.shape.elements() * samples) * static_cast<double>(tensor::size_of(value.dtype));
    };
    double moved = bytes_of(node.output);
    for (const int input : node.inputs) moved += bytes_of(input);
    const double weights = 4.0 * static_cast<double>(node.parameter_count());
    const double peak = node.type == "linear" ? peaks.linear_flops : peaks.convolution_flops;
    const auto seconds = [&](int64_t flops, double bytes) {
      return std::max(static_cast<double>(flops * samples) / peak, bytes / peaks.memory_bytes);
    };
    const bool first = std::none_of(node.inputs.begin(), node.inputs.end(),
                                    [&](int input) { return network.values[static_cast<size_t>(input)].wants_gradient; });
    NodeProfile out;
    out.forward = seconds(node.cost.forward_flops, moved + weights);
    if (!first) out.backward_input = seconds(node.cost.backward_input_flops, 2 * moved + weights);
    if (node.cost.backward_weight_flops > 0) out.backward_weight = seconds(node.cost.backward_weight_flops, moved + 2 * weights);
    out.pack = 4 * weights / peaks.memory_bytes;
    out.update = (5 + 2 * optimizer_slots) * weights / peaks.memory_bytes;
    out.output_bytes = static_cast<int64_t>(bytes_of(node.output));
    out.kept_bytes = out.output_bytes;
    profile.push_back(out);
  }
  return profile;
}

std::vector<double> partition_costs(const graph::Network& network, const std::vector<NodeProfile>& profile,
                                    Rematerialize policy) {
  GP_CHECK_EQ(profile.size(), network.nodes.size());
  std::vector<double> costs;
  for (const NodeProfile& node : profile) costs.push_back(node.total(policy));
  if (network.given_costs.empty()) return costs;
  costs.back() = 0;
  for (const graph::GivenCost& given : network.given_costs) {
    double sum = 0;
    for (int node = given.first_node; node < given.last_node; ++node) sum += costs[static_cast<size_t>(node)];
    for (int node = given.first_node; node < given.last_node; ++node) {
      double& cost = costs[static_cast<size_t>(node)];
      cost = sum > 0 ? given.cost * (cost / sum) : given.cost / (given.last_node - given.first_node);
    }
  }
  return costs;
}

}  // namespace gpipe::pipeline
