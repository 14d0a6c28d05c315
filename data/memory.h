// Samples held in memory as they were stored: what most readers end in. Bytes stay bytes, everything else is f32.
#pragma once

#include "core/train/dataset.h"
#include "data/source.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace gpipe::data {

struct Memory {
  train::SampleSpec spec;
  std::variant<std::vector<uint8_t>, std::vector<float>> inputs;  // [size, spec.input...]
  std::vector<int32_t> labels;                                    // [size], when spec.classes > 0
  std::vector<float> values;                                      // [size, spec.target...], otherwise
  std::vector<Stamped> files;
  std::string name;  // "IDX mnist/t10k-images-idx3-ubyte.gz"
};

/// A data set of what `memory` holds; at least one sample.
std::unique_ptr<train::Dataset> in_memory(Memory memory);

/// "NAME, 8,000 samples [28, 28, 1], 10 classes"
std::string describe(const std::string& name, int64_t samples, const train::SampleSpec& spec);

/// Which of the samples of a file are used: [first, last).
struct Range {
  int64_t first = 0;
  int64_t last = 0;
  int64_t size() const { return last - first; }
};

/// Adds a problem at the place of `key`, or of its map where it is absent.
void complain(const base::Tree& arguments, const std::string& path, const char* key, const std::string& message,
              base::Problems& problems);

/// The help and check of the key `range` that every reader has; `given` is empty for "all".
constexpr const char* range_help = "use only the samples [first, last) of what is there, counted from 0";
void check_range(const std::vector<int64_t>& given, const base::Tree& arguments, const std::string& path,
                 base::Problems& problems);
/// The same for a sample's shape: one to five extents of at least 1, at most 2^31 elements; empty stands for the default.
void check_shape(const std::vector<int64_t>& given, const base::Tree& arguments, const std::string& path,
                 base::Problems& problems);
/// DataError when the range goes past `total`, or when nothing is left. `what` names the file.
Range clip_range(const std::vector<int64_t>& given, int64_t total, const std::string& what);

/// Sets labels and classes. `wanted_classes` 0: the largest label + 1. DataError with the index of the first label that
/// is not in [0, classes), and how many there are. `first` is the index of labels[0] in the file.
void set_labels(train::SampleSpec& spec, const std::vector<int32_t>& labels, int64_t wanted_classes, const std::string& file,
                int64_t first);

/// DataError naming the first NaN or infinity: its sample, its place in the sample, and how many there are.
void check_finite(std::span<const float> values, int64_t per_sample, const std::string& file, int64_t first, const char* what);

/// "60,000"
std::string grouped(int64_t number);

}  // namespace gpipe::data
