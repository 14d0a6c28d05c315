// Problems: collects everything that is wrong with a configuration, so that a user sees all of it at once.
#pragma once

#include "core/base/tree.h"

#include <string>
#include <utility>
#include <vector>

namespace gpipe::base {

class Problems {
 public:
  /// `path` is dotted ("train.optimizer.momentum"); empty where there is none.
  void add(const Location& where, const std::string& path, const std::string& message);
  void warn(const Location& where, const std::string& path, const std::string& message);

  /// While one lives, every message ends with its note, innermost first: "..., in block cell used at net.yaml:9:3".
  class Within {
   public:
    Within(Problems& problems, std::string note) : problems_(problems) { problems_.notes_.push_back(std::move(note)); }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    ~Within() { problems_.notes_.pop_back(); }

   private:
    Problems& problems_;
  };

  bool empty() const { return errors_.empty(); }
  const std::vector<std::string>& errors() const { return errors_; }  // "file:line:column: path: message"
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Throws ConfigError with one line an error when there is any.
  void throw_if_any() const;

 private:
  std::vector<std::string> errors_;
  std::vector<std::string> warnings_;
  std::vector<std::string> notes_;
};

}  // namespace gpipe::base
