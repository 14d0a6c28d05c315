#include "core/device/algorithms.h"

namespace gpipe::device {

Algorithms::Algorithms(Rule rule, bool deterministic, Choices known)
    : rule_(rule), deterministic_(deterministic), choices_(std::move(known)) {}

std::string Algorithms::choice(const std::string& key, const std::function<std::string()>& choose) {
  const std::lock_guard lock(mutex_);
  if (const auto found = choices_.find(key); found != choices_.end()) return found->second;
  return choices_[key] = choose();
}

Algorithms::Choices Algorithms::choices() const {
  const std::lock_guard lock(mutex_);
  return choices_;
}

}  // namespace gpipe::device
