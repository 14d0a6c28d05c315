#include "app/yaml_tree.h"

#include "app/yaml_text.h"
#include "core/base/error.h"
#include "core/base/scalar.h"
#include "core/base/text.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <optional>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace gpipe::app {
namespace {

using base::ConfigError;
using base::Location;
using base::Tree;

/// Lines of the text, to look at what stands where the parser says that a value begins.
class Lines {
 public:
  explicit Lines(const std::string& text) : text_(text) {
    starts_.push_back(0);
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') starts_.push_back(i + 1);
    }
  }
  char at(const YAML::Mark& mark) const {
    if (mark.line < 0 || static_cast<size_t>(mark.line) >= starts_.size()) return '\0';
    const size_t i = starts_[static_cast<size_t>(mark.line)] + static_cast<size_t>(mark.column);
    return i < text_.size() ? text_[i] : '\0';
  }
  bool indented_by_tab(int line) const {
    if (line < 0 || static_cast<size_t>(line) >= starts_.size()) return false;
    const size_t start = starts_[static_cast<size_t>(line)];
    const size_t end = std::min(text_.find_first_not_of(" \t", start), text_.size());
    return text_.find('\t', start) < end;
  }

 private:
  const std::string& text_;
  std::vector<size_t> starts_;
};

size_t nodes_of(const Tree& tree) {
  size_t count = 1;
  for (const Tree& item : tree.items()) count += nodes_of(item);
  for (const auto& member : tree.members()) count += nodes_of(member.second);
  return count;
}

/// Builds the tree from the parser's events; throwing from an event is how a limit stops the parser.
class Builder : public YAML::EventHandler {
 public:
  Builder(const Lines& lines, const std::string& source, const YamlLimits& limits)
      : lines_(lines), source_(std::make_shared<const std::string>(source)), limits_(limits) {}

  std::optional<Tree> take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_tag(mark, "");
    if (wants_key()) refuse(mark, "a key is missing before \":\"");
    // An empty value has no place of its own: the parser has moved on to what follows. The key stands for it.
    Tree null;
    null.set_where(in_map() ? open_.back().key_where : place(mark));
    add(std::move(null), anchor, mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (wants_key()) refuse(mark, "an alias cannot be a key");
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) refuse(mark, "the alias stands inside the value that it names: it would never end");
    count(mark, found->second.nodes);
    attach(found->second.tree, mark);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    refuse_tag(mark, tag == "?" || tag == "!" ? "" : tag);
    const std::string value = show_expressions(text);
    if (value.find('\0') != std::string::npos) refuse(mark, "a NUL character is not allowed in a configuration");
    const bool quoted = tag == "!";
    if (wants_key()) {
      if (anchor != YAML::NullAnchor) refuse(mark, "an anchor cannot stand on a key");
      take_key(mark, value, quoted);
      return;
    }
    if (value.size() > limits_.scalar_bytes) {
      refuse(mark, fmt::format("a value of {} is too long: at most {}", base::format_bytes(static_cast<int64_t>(value.size())),
                               base::format_bytes(static_cast<int64_t>(limits_.scalar_bytes))));
    }
    add(Tree::scalar(value, quoted, place(mark)), anchor, mark);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Tree::list({}, place(mark)));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Tree::map({}, place(mark)));
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Tree tree;
    YAML::anchor_t anchor = YAML::NullAnchor;
    YAML::Mark mark;
    bool has_key = false;
    std::string key;
    Location key_where;
    std::unordered_set<std::string> keys;
  };
  struct Anchored {
    Tree tree;
    size_t nodes = 0;
  };

  Location place(const YAML::Mark& mark) const { return {source_, mark.line + 1, mark.column + 1}; }
  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& reason) const {
    throw ConfigError("{}: {}", place(mark).text(), reason);
  }
  bool in_map() const { return !open_.empty() && open_.back().tree.is_map(); }
  bool wants_key() const { return in_map() && !open_.back().has_key; }

  /// The parser reports some tags only by where the value begins.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() && lines_.at(mark) != '!') return;
    refuse(mark, fmt::format("a tag{} is not allowed: leave it out", tag.empty() ? "" : " (" + tag.substr(0, 60) + ")"));
  }

  void count(const YAML::Mark& mark, size_t more) {
    nodes_ += more;
    if (nodes_ > limits_.nodes) {
      refuse(mark, fmt::format("the configuration grows past {} values here, aliases expanded", limits_.nodes));
    }
  }

  void take_key(const YAML::Mark& mark, const std::string& key, bool quoted) {
    Open& map = open_.back();
    if (key == "<<" && !quoted) refuse(mark, "a merge key (<<) is not supported: write its keys out");
    if (key.size() > limits_.key_bytes) {
      refuse(mark, fmt::format("a key of {} bytes is too long: at most {}", key.size(), limits_.key_bytes));
    }
    if (!map.keys.insert(key).second) {
      refuse(mark, fmt::format("duplicate key {}: it stands already at {}", base::shown(key), map.tree.key_where(key).text()));
    }
    if (map.keys.size() > limits_.keys) refuse(mark, fmt::format("a map has at most {} keys", limits_.keys));
    map.key = key;
    map.key_where = place(mark);
    map.has_key = true;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Tree tree) {
    refuse_tag(mark, tag == "?" ? "" : tag);
    if (wants_key()) refuse(mark, "a key must be a plain word, not a list or a map");
    if (open_.size() >= limits_.depth) {
      refuse(mark, fmt::format("lists and maps stand more than {} deep in each other", limits_.depth));
    }
    count(mark, 1);
    Open next;
    next.tree = std::move(tree);
    next.anchor = anchor;
    next.mark = mark;
    open_.push_back(std::move(next));
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    remember(done.anchor, done.tree);
    attach(std::move(done.tree), done.mark);
  }

  void add(Tree tree, YAML::anchor_t anchor, const YAML::Mark& mark) {
    count(mark, 1);
    remember(anchor, tree);
    attach(std::move(tree), mark);
  }

  void remember(YAML::anchor_t anchor, const Tree& tree) {
    if (anchor == YAML::NullAnchor) return;
    const size_t nodes = nodes_of(tree);
    // The kept copy counts like the value itself, or nested anchors would square the memory.
    count({}, nodes);
    anchored_[anchor] = {tree, nodes};
  }

  void attach(Tree tree, const YAML::Mark& mark) {
    if (open_.empty()) {
      if (root_) refuse(mark, "a second value stands after the end of the first");
      root_ = std::move(tree);
    } else if (Open& top = open_.back(); top.tree.is_list()) {
      top.tree.items().push_back(std::move(tree));
    } else {
      top.tree.append(std::move(top.key), std::move(tree), top.key_where);
      top.has_key = false;
    }
  }

  const Lines& lines_;
  std::shared_ptr<const std::string> source_;
  YamlLimits limits_;
  std::vector<Open> open_;
  std::unordered_map<YAML::anchor_t, Anchored> anchored_;
  std::optional<Tree> root_;
  size_t nodes_ = 0;
};

/// Stops at the first event: there must be none after the one document.
class NothingMore : public YAML::EventHandler {
 public:
  explicit NothingMore(const std::string& source) : source_(source) {}
  void OnDocumentStart(const YAML::Mark& mark) override {
    throw ConfigError("{}:{}:{}: the text goes on after the end of its one document: a second \"---\", or a stray character",
                      source_, mark.line + 1, mark.column + 1);
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  std::string source_;
};

/// What would cost the parser much memory, or make it say something misleading, before it is even asked: it takes brackets
/// for the start of a key until their line ends.
void guard_parser(const std::string& text, const std::string& source, const YamlLimits& limits) {
  constexpr size_t open_limit = 1000;  // far above limits.depth, as brackets in texts and comments are counted too
  size_t row = 0, open = 0, marks = 0;
  int line = 1, column = 1;
  for (const char c : text) {
    const bool opens = c == '[' || c == '{', closes = c == ']' || c == '}';
    if (c != ' ' && c != '\n') row = opens ? row + 1 : 0;
    if (opens) ++open;
    if (closes && open > 0) --open;
    if (row > limits.depth || open > open_limit) {
      throw ConfigError("{}:{}:{}: lists and maps stand more than {} deep in each other", source, line, column, limits.depth);
    }
    if (opens || closes || std::string_view(",:\"'&*!?").find(c) != std::string_view::npos) ++marks;
    if (marks > limits.marks_in_line) {
      throw ConfigError("{}:{}:{}: more than {} brackets, quotes and commas stand in one line: break it", source, line, column,
                        limits.marks_in_line);
    }
    if (c == '\n') marks = 0;
    column = c == '\n' ? 1 : column + 1;
    line += c == '\n' ? 1 : 0;
  }
}

}  // namespace

Tree parse_yaml(const std::string& text, const std::string& source, const YamlLimits& limits) {
  const std::string clean = clean_text(text, source, limits.bytes);
  guard_parser(clean, source, limits);
  const std::string hidden = hide_expressions(clean);
  const Lines lines(hidden);
  Builder builder(lines, source, limits);
  try {
    std::istringstream stream(hidden);
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      NothingMore nothing(source);
      parser.HandleNextDocument(nothing);
    }
  } catch (const YAML::Exception& error) {
    const std::string hint = lines.indented_by_tab(error.mark.line) ? " (a tab indents this line: use spaces)" : "";
    throw ConfigError("{}:{}:{}: not valid YAML: {}{}", source, error.mark.line + 1, error.mark.column + 1, error.msg, hint);
  }
  if (auto root = builder.take()) return *std::move(root);
  Tree nothing;
  nothing.set_where({std::make_shared<const std::string>(source), 1, 1});
  return nothing;
}

Tree read_yaml_file(const std::string& path, const YamlLimits& limits) {
  return parse_yaml(read_text_file(path, limits.bytes), path, limits);
}

}  // namespace gpipe::app
