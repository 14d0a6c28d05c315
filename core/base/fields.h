// FieldSet: the one table that says which settings a struct has. Reading, printing, --help, the reference in the
// README and the JSON Schema all come from it; a field is declared once.
//
//   const base::FieldSet<DropoutConfig>& dropout_fields() {
//     static const auto fields = [] {
//       base::FieldSet<DropoutConfig> f{"dropout"};
//       f.add("p", &DropoutConfig::p).range(0.0, 1.0, /*open_end=*/true).help("probability of dropping an element");
//       return f;
//     }();
//     return fields;
//   }
//
// Field types: bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>, base::Tree (kept
// raw), and an enum given as a list of words. The default is what a value-initialised struct holds.
#pragma once

#include "core/base/problems.h"
#include "core/base/tree.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace gpipe::base {

/// What is the same for fields of every type; the untyped face that help and schema walk.
struct FieldInfo {
  enum class Type { boolean, integer, number, text, integer_list, text_list, word, raw };
  std::string key;
  Type type = Type::text;
  std::string help;
  std::string unit;  // "samples", "ms"...; empty: none
  std::optional<double> low, high;
  bool open_low = false, open_high = false;
  bool required = false;
  bool nullable = false;           // `key:` with no value keeps the default
  bool scalar_or_list = false;     // integer_list: a plain number stands for a list of one
  std::vector<std::string> words;  // the allowed words of Type::word; of Type::text: empty allows any
  std::string raw_schema;          // Type::raw: its JSON Schema as text; empty: anything

  /// The allowed words as a user writes them: the empty one in quotes.
  std::vector<std::string> shown_words() const {
    std::vector<std::string> shown = words;
    std::replace(shown.begin(), shown.end(), std::string(), std::string("\"\""));
    return shown;
  }
};

namespace detail {
// Strict readers: report to `problems` and return nothing when the tree does not hold such a value.
std::optional<bool> read_bool(const Tree&, const std::string& path, Problems&);
std::optional<int64_t> read_integer(const Tree&, const std::string& path, const FieldInfo&, Problems&);
std::optional<double> read_number(const Tree&, const std::string& path, const FieldInfo&, Problems&);
std::optional<std::string> read_text(const Tree&, const std::string& path, Problems&);
std::optional<std::string> read_text(const Tree&, const std::string& path, const FieldInfo&, Problems&);
std::optional<size_t> read_word(const Tree&, const std::string& path, const FieldInfo&, Problems&);
std::optional<std::vector<int64_t>> read_integers(const Tree&, const std::string& path, const FieldInfo&, Problems&);
std::optional<std::vector<std::string>> read_texts(const Tree&, const std::string& path, Problems&);
Tree write_bool(bool);
Tree write_integer(int64_t);
Tree write_number(double);
Tree write_text(const std::string&);
void missing(const Tree&, const std::string& path, const FieldInfo&, Problems&);
/// Unknown keys, with the nearest known one; keys in `allowed_too` are read by somebody else.
void unknown_keys(const Tree&, const std::string& path, const std::vector<FieldInfo>&,
                  const std::vector<std::string>& allowed_too, Problems&);
bool expect_map(const Tree&, const std::string& path, Problems&);
std::string join_path(const std::string& path, const std::string& key);
}  // namespace detail

/// A field set without its struct: what help, the reference and the JSON Schema (core/base/schema.h) are made from.
struct FieldTable {
  std::string name;
  std::vector<FieldInfo> infos;
  std::vector<Tree> defaults;  // parallel to infos
};

/// One line a field: prefix + key, type or words, default, range, unit, help; aligned.
std::string help_of(const FieldTable& table, const std::string& prefix = "");
/// "integer 1..1024", "number, at least 0 and below 1", "full | none": what a field takes, in words.
std::string domain_of(const FieldInfo& info);
/// "1..1024 threads", "at least 0 and below 1"; "" where there are no limits.
std::string range_of(const FieldInfo& info);
/// The default as help shows it: "0.9", "[1, 1]", "required", "none".
std::string default_of(const FieldTable& table, size_t index);

/// Checks a map (or null) against a table alone, with the messages that FieldSet::read would give; raw fields pass.
void check_fields(const Tree& tree, const std::string& path, const FieldTable& table, Problems& problems);

template <class T>
class FieldSet {
 public:
  explicit FieldSet(std::string name) : name_(std::move(name)) {}

  /// Chainable description of the field just added.
  class Row {
   public:
    explicit Row(FieldInfo& info) : info_(info) {}
    Row& help(std::string text) {
      info_.help = std::move(text);
      return *this;
    }
    Row& unit(std::string text) {
      info_.unit = std::move(text);
      return *this;
    }
    Row& at_least(double low, bool open = false) {
      info_.low = low;
      info_.open_low = open;
      return *this;
    }
    Row& at_most(double high, bool open = false) {
      info_.high = high;
      info_.open_high = open;
      return *this;
    }
    Row& range(double low, double high, bool open_end = false) { return at_least(low).at_most(high, open_end); }
    Row& required() {
      info_.required = true;
      return *this;
    }
    Row& nullable() {
      info_.nullable = true;
      return *this;
    }
    Row& scalar_or_list() {
      info_.scalar_or_list = true;
      return *this;
    }
    /// The words that a text may be; none: any. For words that come from a list; an enum is better where there is one.
    Row& one_of(std::vector<std::string> words) {
      info_.words = std::move(words);
      return *this;
    }
    Row& raw_schema(std::string json) {
      info_.raw_schema = std::move(json);
      return *this;
    }

   private:
    FieldInfo& info_;
  };

  Row add(const std::string& key, bool T::*member) {
    return push(
        key, FieldInfo::Type::boolean,
        [member](T& t, const Tree& v, const std::string& path, const FieldInfo&, Problems& p) {
          if (auto x = detail::read_bool(v, path, p)) t.*member = *x;
        },
        [member](const T& t) { return detail::write_bool(t.*member); });
  }
  Row add(const std::string& key, int64_t T::*member) {
    return push(
        key, FieldInfo::Type::integer,
        [member](T& t, const Tree& v, const std::string& path, const FieldInfo& f, Problems& p) {
          if (auto x = detail::read_integer(v, path, f, p)) t.*member = *x;
        },
        [member](const T& t) { return detail::write_integer(t.*member); });
  }
  Row add(const std::string& key, double T::*member) {
    return push(
        key, FieldInfo::Type::number,
        [member](T& t, const Tree& v, const std::string& path, const FieldInfo& f, Problems& p) {
          if (auto x = detail::read_number(v, path, f, p)) t.*member = *x;
        },
        [member](const T& t) { return detail::write_number(t.*member); });
  }
  Row add(const std::string& key, std::string T::*member) {
    return push(
        key, FieldInfo::Type::text,
        [member](T& t, const Tree& v, const std::string& path, const FieldInfo& f, Problems& p) {
          if (auto x = detail::read_text(v, path, f, p)) t.*member = *x;
        },
        [member](const T& t) { return detail::write_text(t.*member); });
  }
  Row add(const std::string& key, std::vector<int64_t> T::*member) {
    return push(
        key, FieldInfo::Type::integer_list,
        [member](T& t, const Tree& v, const std::string& path, const FieldInfo& f, Problems& p) {
          if (auto x = detail::read_integers(v, path, f, p)) t.*member = *x;
        },
        [member](const T& t) {
          Tree list = Tree::list();
          for (int64_t x : t.*member) list.items().push_back(detail::write_integer(x));
          return list;
        });
  }
  Row add(const std::string& key, std::vector<std::string> T::*member) {
    return push(
        key, FieldInfo::Type::text_list,
        [member](T& t, const Tree& v, const std::string& path, const FieldInfo&, Problems& p) {
          if (auto x = detail::read_texts(v, path, p)) t.*member = *x;
        },
        [member](const T& t) {
          Tree list = Tree::list();
          for (const std::string& x : t.*member) list.items().push_back(detail::write_text(x));
          return list;
        });
  }
  /// A part that somebody else reads (a network, a per-layer argument of several forms).
  Row add(const std::string& key, Tree T::*member) {
    return push(
        key, FieldInfo::Type::raw,
        [member](T& t, const Tree& v, const std::string&, const FieldInfo&, Problems&) { t.*member = v; },
        [member](const T& t) { return t.*member; });
  }
  /// An enum: `words[i]` is the name of the value with the number i.
  template <class E>
  Row add(const std::string& key, E T::*member, std::vector<std::string> words) {
    static_assert(std::is_enum_v<E>);
    Row row = push(
        key, FieldInfo::Type::word,
        [member](T& t, const Tree& v, const std::string& path, const FieldInfo& f, Problems& p) {
          if (auto x = detail::read_word(v, path, f, p)) t.*member = static_cast<E>(*x);
        },
        [member, words](const T& t) { return detail::write_text(words.at(static_cast<size_t>(t.*member))); });
    infos_.back().words = std::move(words);
    return row;
  }

  /// Reads `tree` (a map, or null for "all defaults") into `out`; every fault goes to `problems`.
  void read(const Tree& tree, const std::string& path, T& out, Problems& problems,
            const std::vector<std::string>& allowed_too = {}) const {
    if (!tree.is_null() && !detail::expect_map(tree, path, problems)) return;
    detail::unknown_keys(tree, path, infos_, allowed_too, problems);
    for (size_t i = 0; i < infos_.size(); ++i) {
      const Tree* value = tree.is_map() ? tree.find(infos_[i].key) : nullptr;
      if (value == nullptr || (value->is_null() && (infos_[i].nullable || infos_[i].type == FieldInfo::Type::raw))) {
        if (infos_[i].required) detail::missing(tree, detail::join_path(path, infos_[i].key), infos_[i], problems);
        continue;
      }
      readers_[i](out, *value, detail::join_path(path, infos_[i].key), infos_[i], problems);
    }
  }

  /// The struct as a map with every field, defaults included.
  Tree write(const T& from) const {
    Tree map = Tree::map();
    for (size_t i = 0; i < infos_.size(); ++i) map.set(infos_[i].key, writers_[i](from));
    return map;
  }

  FieldTable table() const { return {name_, infos_, defaults()}; }
  const std::vector<FieldInfo>& infos() const { return infos_; }
  std::vector<FieldInfo>& infos() { return infos_; }
  const std::string& name() const { return name_; }

 private:
  using Reader = std::function<void(T&, const Tree&, const std::string&, const FieldInfo&, Problems&)>;
  using Writer = std::function<Tree(const T&)>;

  Row push(const std::string& key, FieldInfo::Type type, Reader reader, Writer writer) {
    FieldInfo info;
    info.key = key;
    info.type = type;
    infos_.push_back(std::move(info));
    readers_.push_back(std::move(reader));
    writers_.push_back(std::move(writer));
    return Row(infos_.back());
  }
  std::vector<Tree> defaults() const {
    const T value{};
    std::vector<Tree> all;
    for (const Writer& writer : writers_) all.push_back(writer(value));
    return all;
  }

  std::string name_;
  std::vector<FieldInfo> infos_;
  std::vector<Reader> readers_;
  std::vector<Writer> writers_;
};

}  // namespace gpipe::base
