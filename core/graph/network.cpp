#include "core/graph/network.h"

#include "core/base/error.h"

#include <fmt/format.h>

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

namespace {

bool same_but_head(const Shape& shape, const Shape& table) {
  if (shape.rank() == 0 || shape.rank() != table.rank() || shape[0] > table[0]) return false;
  return std::equal(shape.extents().begin() + 1, shape.extents().end(), table.extents().begin() + 1);
}

}  // namespace

void share_parameters(const Network& widest, Network& narrower, base::Problems& problems) {
  GP_CHECK_EQ(narrower.nodes.size(), widest.nodes.size());
  for (size_t i = 0; i < narrower.nodes.size(); ++i) {
    const Node& wide = widest.nodes[i];
    Node& node = narrower.nodes[i];
    GP_CHECK(node.name == wide.name && node.parameters.size() == wide.parameters.size());
    const auto complain = [&](const std::string& name, const Shape& is, const Shape& wanted) {
      problems.add(node.where, node.name,
                   fmt::format("its {} is {} here and {} for the widest samples, but buckets share their weights; take a layer "
                               "whose weights do not depend on the length, or do without buckets",
                               name, is, wanted));
    };
    for (size_t k = 0; k < node.parameters.size(); ++k) {
      const Shape &is = node.parameters[k].shape, &wanted = wide.parameters[k].shape;
      const bool fits = node.layer->uses_head_of_parameters() ? same_but_head(is, wanted) : is == wanted;
      if (!fits) complain(node.parameters[k].name, is, wanted);
    }
    for (size_t k = 0; k < node.buffers.size(); ++k)
      if (!(node.buffers[k].shape == wide.buffers[k].shape))
        complain(node.buffers[k].name, node.buffers[k].shape, wide.buffers[k].shape);
    node.parameters = wide.parameters;
  }
}

}  // namespace gpipe::graph
