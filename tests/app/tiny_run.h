// A training run that takes a fraction of a second, and what it leaves behind.
#pragma once

#include "tests/app/child.h"

#include <nlohmann/json.hpp>

#include <set>
#include <string>
#include <vector>

namespace gpipe::test {

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Real digits through batch norm, dropout, augmentation and momentum: whatever a resumed run could get wrong is in it.
inline std::string tiny_config() {
  const std::string path = (source_dir() / "data/digits.csv").string();
  return R"(network:
- conv2d: {out_channels: 4, kernel_size: 3, padding: same}
- batch_norm
- relu
- max_pool2d: {kernel_size: 2}
- flatten
- dropout: {p: 0.2}
- linear: {out_features: 10}
pipeline: {partitions: 2, micro_batches: 2, bind_threads: false, device: )" +
         program_device() + R"(}
data:
  train: {csv: {path: )" +
         path + R"(, label: digit, shape: [8, 8, 1], range: [0, 200]}}
  validation: {csv: {path: )" +
         path + R"(, label: digit, shape: [8, 8, 1], range: [200, 264]}}
  normalize: {mean: [4.88], std: [6.02]}
  random_crop: 1
train: {batch_size: 16, steps: 40, learning_rate: 0.05, schedule: cosine, validate_every: 8}
checkpoint: {every_steps: 3, best: validation_loss}
output: {folder: run}
)";
}

/// The same on made-up data, without a file of its own: for tests of what surrounds the training.
inline const std::string made_up_config = R"(network: [linear: {out_features: 8}, relu, linear: {out_features: 3}]
pipeline: {partitions: 2, micro_batches: 2, bind_threads: false}
data: {train: {synthetic: {samples: 64, shape: [6], classes: 3, seed: 1}}, validation_split: 0.25}
train: {batch_size: 8, steps: 6, learning_rate: 0.05}
checkpoint: {every_steps: 2}
output: {folder: run}
)";

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(content_of(path), nullptr, false);
}

/// The lines of metrics.jsonl without what tells of time, and without the memory, which goes by the stages.
inline std::vector<std::string> timeless_metrics(const std::filesystem::path& run) {
  std::vector<std::string> lines;
  std::istringstream text(content_of(run / "metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) return {"not JSON: " + line};
    for (const char* key :
         {"seconds", "samples_per_second", "tokens_per_second", "seconds_waiting", "busy_seconds", "bubble", "arena_bytes"})
      json.erase(key);
    lines.push_back(json.dump());
  }
  return lines;
}

inline std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& run) {
  std::set<std::filesystem::path> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints", none)) found.insert(entry.path());
  return {found.begin(), found.end()};
}

/// Weights and optimizer state of the newest checkpoint, byte for byte but for the metadata that names the run.
inline std::string final_state(const std::filesystem::path& run) {
  const auto all = checkpoints_of(run);
  if (all.empty()) return "no checkpoint";
  std::string bytes;
  for (const char* name : {"model.safetensors", "average.safetensors", "optimizer.safetensors"}) {
    if (!std::filesystem::exists(all.back() / name)) continue;
    const std::string file = content_of(all.back() / name);
    uint64_t header = 0;
    std::memcpy(&header, file.data(), std::min(file.size(), sizeof header));
    auto names = nlohmann::json::parse(file.substr(8, header), nullptr, false);
    names.erase("__metadata__");
    bytes += names.dump() + file.substr(std::min<size_t>(8 + header, file.size()));
  }
  return bytes;
}

}  // namespace gpipe::test
