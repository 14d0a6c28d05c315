// Algorithms: which of a vendor library's algorithms the ops of a run run with. Bits of results depend on it, so all devices of
// a run share one object, which holds every choice that was made; profiles and checkpoints keep them. Any thread.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace gpipe::device {

class Algorithms {
 public:
  /// How to choose where nothing was chosen before: the library's own suggestion, a function of shapes, device and versions; or
  /// the fastest of those that are measured, which differs from time to time.
  enum class Rule { suggested, measured };
  /// By what is planned: operation, shapes, precision, device and library in words, nothing of stages or the device's index.
  /// The choice is the library's own name or number of the algorithm.
  using Choices = std::map<std::string, std::string>;

  /// `deterministic`: none but algorithms that give the same bits every time.
  explicit Algorithms(Rule rule = Rule::suggested, bool deterministic = true, Choices known = {});

  bool measures() const { return rule_ == Rule::measured; }
  bool deterministic() const { return deterministic_; }
  /// What was chosen for the key; if nothing was, what `choose` says now, once and for all. One thread at a time is in `choose`,
  /// so that what it measures is not disturbed.
  std::string choice(const std::string& key, const std::function<std::string()>& choose);
  /// All so far, those that were known from the start too.
  Choices choices() const;

 private:
  Rule rule_;
  bool deterministic_;
  mutable std::mutex mutex_;
  Choices choices_;
};

}  // namespace gpipe::device
