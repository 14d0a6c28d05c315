#include "core/base/tree.h"

#include "core/base/scalar.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpipe::base {

std::string Location::text() const {
  if (!file) return "";
  return line > 0 ? fmt::format("{}:{}:{}", *file, line, column) : *file;
}

Tree Tree::scalar(std::string text, bool quoted, Location where) {
  Tree tree;
  tree.kind_ = Kind::scalar;
  tree.text_ = std::move(text);
  tree.quoted_ = quoted;
  tree.where_ = std::move(where);
  return tree;
}

Tree Tree::list(std::vector<Tree> items, Location where) {
  Tree tree;
  tree.kind_ = Kind::list;
  tree.items_ = std::move(items);
  tree.where_ = std::move(where);
  return tree;
}

Tree Tree::map(std::vector<Member> members, Location where) {
  Tree tree;
  tree.kind_ = Kind::map;
  tree.members_ = std::move(members);
  tree.where_ = std::move(where);
  return tree;
}

const Tree* Tree::find(const std::string& key) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.first == key; });
  return found == members_.end() ? nullptr : &found->second;
}

Tree* Tree::find(const std::string& key) { return const_cast<Tree*>(std::as_const(*this).find(key)); }

const Location& Tree::key_where(const std::string& key) const {
  for (size_t i = 0; i < std::min(members_.size(), key_places_.size()); ++i) {
    if (members_[i].first == key && key_places_[i].file) return key_places_[i];
  }
  return where_;
}

void Tree::append(std::string key, Tree value, Location key_where) {
  key_places_.resize(members_.size());
  members_.emplace_back(std::move(key), std::move(value));
  key_places_.push_back(std::move(key_where));
}

void Tree::set(const std::string& key, Tree value, Location key_where) {
  if (is_null()) kind_ = Kind::map;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].first != key) continue;
    members_[i].second = std::move(value);
    key_places_.resize(members_.size());
    key_places_[i] = std::move(key_where);
    return;
  }
  append(key, std::move(value), std::move(key_where));
}

void Tree::overlay(const Tree& over) {
  if (!is_map() || !over.is_map()) {
    *this = over;
    return;
  }
  for (const auto& [key, value] : over.members_) {
    if (Tree* mine = find(key)) {
      mine->overlay(value);
    } else {
      set(key, value, over.key_where(key));
    }
  }
}

std::string Tree::kind_words() const {
  switch (kind_) {
    case Kind::null: return "nothing";
    case Kind::list: return "a list";
    case Kind::map: return "a map";
    case Kind::scalar: break;
  }
  if (quoted_) return "text in quotes";
  switch (scalar_type(text_)) {
    case ScalarType::null: return "nothing";
    case ScalarType::boolean: return "a boolean";
    case ScalarType::integer:
    case ScalarType::number: return "a number";
    case ScalarType::unclear:
    case ScalarType::text: break;
  }
  return "text";
}

std::string Tree::found() const {
  if (!is_scalar()) return kind_words();
  if (!quoted_ && scalar_type(text_) != ScalarType::text && scalar_type(text_) != ScalarType::unclear) return text_;
  return kind_words() + " " + shown(text_);
}

bool Tree::operator==(const Tree& other) const {
  if (kind_ != other.kind_ || text_ != other.text_ || items_ != other.items_ || members_ != other.members_) return false;
  if (kind_ != Kind::scalar) return true;
  const auto type = [](const Tree& tree) { return tree.quoted_ ? ScalarType::text : scalar_type(tree.text_); };
  return type(*this) == type(other);
}

}  // namespace gpipe::base
