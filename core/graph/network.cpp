#include "core/graph/network.h"

#include <algorithm>

namespace gpipe::graph {

const Tie* Network::tie_of(int node, int parameter) const {
  const auto tie = std::lower_bound(ties.begin(), ties.end(), std::pair(node, parameter),
                                    [](const Tie& t, const auto& key) { return std::pair(t.user_node, t.user_parameter) < key; });
  return tie != ties.end() && tie->user_node == node && tie->user_parameter == parameter ? &*tie : nullptr;
}

int Network::loss_count() const {
  return static_cast<int>(std::count_if(nodes.begin(), nodes.end(), [](const Node& node) { return node.is_loss; }));
}

int Network::loss_index(int node) const {
  if (node == loss_node()) return 0;
  return 1 + static_cast<int>(std::count_if(nodes.begin(), nodes.begin() + node, [](const Node& n) { return n.is_loss; }));
}

std::vector<bool> Network::leads_to_loss() const {
  std::vector<bool> leads(nodes.size(), false);
  leads.back() = true;
  for (size_t node = nodes.size(); node-- > 0;) {
    if (!leads[node]) continue;
    for (const int from : nodes[node].inputs)
      if (const int producer = values[static_cast<size_t>(from)].producer; producer >= 0)
        leads[static_cast<size_t>(producer)] = true;
  }
  return leads;
}

void Network::freeze(const std::function<bool(const std::string&)>& is_frozen) {
  for (Node& node : nodes) {
    bool learns = false;
    for (ParameterSpec& parameter : node.parameters) {
      parameter.frozen = is_frozen(parameter.tied_to.empty() ? node.name + "." + parameter.name : parameter.tied_to);
      learns = learns || !parameter.frozen;
    }
    for (const int from : node.inputs) learns = learns || values[static_cast<size_t>(from)].wants_gradient;
    Value& made = values[static_cast<size_t>(node.output)];
    made.wants_gradient = learns && made.dtype == DType::f32;
  }
}

}  // namespace gpipe::graph
