// Tree: a configuration as plain data: maps, lists and scalars that remember where they stood in the file.
//
// Made by app/yaml_tree (from a file, or from --set) and read through FieldSet (core/base/fields.h). Nothing here
// knows YAML. A scalar keeps its text and whether it was quoted; typed reading is strict and belongs to fields.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpipe::base {

/// Where a value stands: file, line and column from 1; line 0 means "not from a file" (a default, --set, a test).
struct Location {
  std::shared_ptr<const std::string> file;
  int line = 0;
  int column = 0;

  /// "configs/a.yaml:3:5", or "--set train.seed", or "" when nothing is known.
  std::string text() const;
};

class Tree {
 public:
  enum class Kind { null, scalar, list, map };
  using Member = std::pair<std::string, Tree>;

  Tree() = default;  // null
  static Tree scalar(std::string text, bool quoted = false, Location where = {});
  static Tree list(std::vector<Tree> items = {}, Location where = {});
  static Tree map(std::vector<Member> members = {}, Location where = {});

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::null; }
  bool is_scalar() const { return kind_ == Kind::scalar; }
  bool is_list() const { return kind_ == Kind::list; }
  bool is_map() const { return kind_ == Kind::map; }

  const Location& where() const { return where_; }
  void set_where(Location where) { where_ = std::move(where); }

  const std::string& text() const { return text_; }  // scalars
  bool quoted() const { return quoted_; }            // scalars: was it quoted in the file? then its type is text

  const std::vector<Tree>& items() const { return items_; }  // lists
  std::vector<Tree>& items() { return items_; }

  const std::vector<Member>& members() const { return members_; }  // maps, in the order of the file
  std::vector<Member>& members() { return members_; }
  const Tree* find(const std::string& key) const;  // null when absent
  Tree* find(const std::string& key);
  const Location& key_where(const std::string& key) const;                // where the key itself stands, else where()
  void set(const std::string& key, Tree value, Location key_where = {});  // adds or replaces; null becomes a map
  void append(std::string key, Tree value, Location key_where = {});      // the caller knows that the key is new

  /// Lays `over` on top: maps merge key by key, everything else is replaced.
  void overlay(const Tree& over);

  /// "a map", "a list", "text", "a number"...: what a message says was found.
  std::string kind_words() const;
  /// The same with a scalar's text, shortened: `text "abc"`, `12`.
  std::string found() const;

  /// The same data, wherever it stood. Quotes count only where they change the type: `"a"` is `a`, `"1"` is not `1`.
  bool operator==(const Tree& other) const;

 private:
  Kind kind_ = Kind::null;
  std::string text_;
  bool quoted_ = false;
  std::vector<Tree> items_;
  std::vector<Member> members_;
  std::vector<Location> key_places_;  // parallel to members_
  Location where_;
};

}  // namespace gpipe::base
