// The page that the author of a data set reads.
//
// A Dataset is stateless after it was opened and may be read from any thread. It hands out samples by index; order,
// augmentation and batching belong to the loader. Opening checks sizes before it allocates, and every fault is a
// DataError that names file, place, what was found and what was wanted.
#pragma once

#include "core/base/fields.h"
#include "core/base/tree.h"
#include "core/tensor/tensor.h"
#include "core/train/tokenizer.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpipe::train {

/// Shapes of the samples of a bucket.
struct BucketShape {
  tensor::Shape input, target;
  bool operator==(const BucketShape&) const = default;
};

struct SampleSpec {
  tensor::Shape input;   // [H, W, C] or [F] of numbers, [T] of token ids
  tensor::Shape target;  // [] for a class, [T] for a token's at each position (device::k_ignored_target: none), else values
  tensor::DType input_type = tensor::DType::f32;  // i32: token ids
  tensor::DType target_type = tensor::DType::i32;
  int64_t classes = 0;                   // or tokens; 0 for values
  std::vector<std::string> class_names;  // may be empty
  bool labelled = true;                  // false: there are no targets (read() writes class 0), only predict takes such data
  /// Of buckets 1, 2, ..., each smaller than the one before; `input` and `target` are those of bucket 0, the widest.
  std::vector<BucketShape> narrower;

  int buckets() const { return 1 + static_cast<int>(narrower.size()); }
  BucketShape bucket(int index) const {
    return index == 0 ? BucketShape{input, target} : narrower.at(static_cast<size_t>(index) - 1);
  }
  /// Is a target a token at each position? Then the exponential of the mean loss is the perplexity.
  bool predicts_tokens() const { return classes > 0 && input_type == tensor::DType::i32 && target.rank() == 1; }
};

/// The same memory as what it holds.
inline std::span<float> as_floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}
inline std::span<int32_t> as_ints(std::span<std::byte> bytes) {
  return {reinterpret_cast<int32_t*>(bytes.data()), bytes.size() / sizeof(int32_t)};
}

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  virtual const SampleSpec& spec() const = 0;
  virtual int64_t size() const = 0;
  /// The narrowest bucket that sample `index` fits into.
  virtual int bucket_of(int64_t /*index*/) const { return 0; }
  /// Writes sample `index`: `input` has room for spec().input.elements() floats, raw values as stored (pixels are 0..255), or
  /// i32; `target` for spec().target.elements() of its type. Or both have the shapes of any bucket that the sample fits into.
  virtual void read(int64_t index, std::span<std::byte> input, std::span<std::byte> target) const = 0;
  /// Once an epoch: are the files still those that were opened (size, time stamp)? Throws DataError if not.
  virtual void recheck() const {}
  /// What the samples are tokens of; null where they are none, or nobody knows the text. Lives as long as the data set.
  virtual const Tokenizer* tokenizer() const { return nullptr; }
  virtual std::string describe() const = 0;  // "IDX mnist/train-images.gz, 8,000 samples [28, 28, 1], 10 classes"
};

/// One row of the list of data sets.
struct DatasetType {
  std::string name;  // "idx"
  std::string summary;
  /// Reads arguments and opens. Configuration faults go to `problems` (null returned); bad data throws DataError.
  std::unique_ptr<Dataset> (*open)(const base::Tree& arguments, const std::string& path, base::Problems& problems);
  base::FieldTable (*fields)();
};

}  // namespace gpipe::train
