// Problems: collects everything that is wrong with a configuration, so that a user sees all of it at once.
#pragma once

#include "core/base/tree.h"

#include <string>
#include <vector>

namespace gpipe::base {

class Problems {
 public:
  /// `path` is dotted ("train.optimizer.momentum"); empty where there is none.
  void add(const Location& where, const std::string& path, const std::string& message);
  void warn(const Location& where, const std::string& path, const std::string& message);

  bool empty() const { return errors_.empty(); }
  const std::vector<std::string>& errors() const { return errors_; }  // "file:line:column: path: message"
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Throws ConfigError with one line an error when there is any.
  void throw_if_any() const;

 private:
  std::vector<std::string> errors_;
  std::vector<std::string> warnings_;
};

}  // namespace gpipe::base
