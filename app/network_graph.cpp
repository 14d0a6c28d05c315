#include "app/network_graph.h"

#include "core/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace gpipe::app {
namespace {

using graph::Network;
using graph::Node;

/// The first `levels` parts of a dotted name; all of it when there are no more.
std::string_view first_levels(std::string_view name, int levels) {
  size_t end = 0;
  for (int i = 0; i < levels; ++i) {
    end = name.find('.', end);
    if (end == std::string_view::npos) return name;
    ++end;
  }
  return name.substr(0, end - 1);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

/// One box: a layer, or all layers of a block that is folded.
struct Box {
  std::string name;
  int first_node = 0, last_node = 0;
  int64_t layers = 0, parameters = 0;
};

class Drawing {
 public:
  Drawing(const Network& network, int depth) : network_(network) {
    box_of_node_.reserve(network.nodes.size());
    std::unordered_map<std::string_view, size_t> known;
    for (size_t i = 0; i < network.nodes.size(); ++i) {
      const Node& node = network.nodes[i];
      const std::string_view name = first_levels(node.name, depth);
      const auto [found, is_new] = known.try_emplace(name, boxes_.size());
      if (is_new) boxes_.push_back({std::string(name), static_cast<int>(i), static_cast<int>(i), 0, 0});
      Box& box = boxes_[found->second];
      box.last_node = static_cast<int>(i);
      ++box.layers;
      box.parameters += node.parameter_count();
      box_of_node_.push_back(found->second);
    }
  }

  const std::vector<Box>& boxes() const { return boxes_; }

  std::string text(const std::string& title) const {
    std::string out = fmt::format(
        "digraph {} {{\n  graph [fontname=\"Helvetica\", fontsize=11, nodesep=0.2, ranksep=0.25];\n"
        "  node [shape=box, style=filled, fillcolor=white, color=gray40, fontname=\"Helvetica\", fontsize=10, "
        "margin=\"0.08,0.03\", "
        "height=0.2];\n  edge [color=gray30, arrowsize=0.6];\n",
        quoted(title));
    const graph::Value& input = network_.values[static_cast<size_t>(network_.input)];
    out += fmt::format("  input [label={}, shape=ellipse];\n", quoted(fmt::format("input {}", input.shape)));
    add_boxes(out);
    add_edges(out);
    return out + "}\n";
  }

 private:
  std::string label(const Box& box) const {
    const Node& last = network_.nodes[static_cast<size_t>(box.last_node)];
    const size_t dot = box.name.rfind('.');
    const std::string local = dot == std::string::npos ? box.name : box.name.substr(dot + 1);
    std::string text = box.layers == 1 && local.starts_with(last.type) ? last.type : local;
    if (box.layers == 1 && text != last.type) text += ": " + last.type;
    if (box.layers > 1) text += fmt::format(" ({} layers)", base::format_count(box.layers));
    text += fmt::format("\\n{}", network_.values[static_cast<size_t>(last.output)].shape);
    if (box.parameters > 0) text += fmt::format("  {} parameters", base::format_count_short(box.parameters));
    return text;
  }

  /// Frames open and close as the names of consecutive boxes share their beginnings. A frame that comes again (the parts of a
  /// block need not stand together) has the same name, which Graphviz takes for the same frame.
  void add_boxes(std::string& out) const {
    std::vector<std::string> open;
    for (size_t i = 0; i < boxes_.size(); ++i) {
      const std::vector<std::string> frames = frames_of(boxes_[i].name);
      size_t shared = 0;
      while (shared < std::min(open.size(), frames.size()) && open[shared] == frames[shared]) ++shared;
      for (; open.size() > shared; open.pop_back()) out += margin(open.size()) + "}\n";
      for (; open.size() < frames.size(); open.push_back(frames[open.size()])) {
        const std::string& frame = frames[open.size()];
        out += fmt::format("{}subgraph {} {{\n{}  graph [label={}, labeljust=l, style=filled, color=gray60, fillcolor={}];\n",
                           margin(open.size() + 1), quoted("cluster_" + frame), margin(open.size() + 1),
                           quoted(frame.substr(frame.rfind('.') + 1)), open.size() % 2 == 0 ? "gray96" : "white");
      }
      out += fmt::format("{}n{} [label=\"{}\"{}];\n", margin(open.size() + 1), i, label(boxes_[i]),
                         boxes_[i].layers > 1       ? ", fillcolor=lightyellow, peripheries=2"
                         : boxes_[i].parameters > 0 ? ", fillcolor=lightblue"
                                                    : "");
    }
    for (; !open.empty(); open.pop_back()) out += margin(open.size()) + "}\n";
  }

  void add_edges(std::string& out) const {
    std::set<std::pair<int64_t, int64_t>> drawn;
    for (size_t i = 0; i < network_.nodes.size(); ++i) {
      const auto to = static_cast<int64_t>(box_of_node_[i]);
      for (const int value : network_.nodes[i].inputs) {
        const int producer = network_.values[static_cast<size_t>(value)].producer;
        const int64_t from = producer < 0 ? -1 : static_cast<int64_t>(box_of_node_[static_cast<size_t>(producer)]);
        if (from == to || !drawn.emplace(from, to).second) continue;
        out += from < 0 ? fmt::format("  input -> n{};\n", to) : fmt::format("  n{} -> n{};\n", from, to);
      }
    }
  }

  static std::string margin(size_t level) { return std::string(2 * level, ' '); }

  static std::vector<std::string> frames_of(const std::string& name) {
    std::vector<std::string> frames;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      frames.push_back(name.substr(0, dot));
    return frames;
  }

  const Network& network_;
  std::vector<Box> boxes_;
  std::vector<size_t> box_of_node_;
};

}  // namespace

int levels_of(const Network& network) {
  int64_t levels = 1;
  for (const Node& node : network.nodes) levels = std::max(levels, 1 + std::count(node.name.begin(), node.name.end(), '.'));
  return static_cast<int>(levels);
}

size_t boxes_at(const Network& network, int depth) {
  std::unordered_set<std::string_view> names;
  for (const Node& node : network.nodes) names.insert(first_levels(node.name, depth));
  return names.size();
}

std::string dot_of(const Network& network, const std::string& title, int depth) { return Drawing(network, depth).text(title); }

}  // namespace gpipe::app
