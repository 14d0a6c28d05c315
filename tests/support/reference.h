// Every node type again, in double precision and plain loops: what the product is compared with, and what is itself
// compared with central differences. Slow on purpose; shares no code with the product but the random numbers of dropout.
//
// Everything is a flat vector in the product's layout: channels-last values, PyTorch's weights.
#pragma once

#include "core/base/tree.h"
#include "core/graph/layer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::test {

using Numbers = std::vector<double>;
using tensor::Shape;

/// The arguments of one node as the configuration gives them, read without the product's readers.
class Arguments {
 public:
  explicit Arguments(const base::Tree& tree) : tree_(tree) {}
  bool has(const std::string& key) const { return tree_.is_map() && tree_.find(key) != nullptr; }
  double number(const std::string& key, double otherwise) const;
  int64_t integer(const std::string& key, int64_t otherwise) const;
  bool truth(const std::string& key, bool otherwise) const;
  std::string word(const std::string& key, const std::string& otherwise) const;
  /// A number or a list of numbers; one number stands for two.
  std::vector<int64_t> pair(const std::string& key, int64_t otherwise) const;
  /// The list as it is; a number alone is a list of one; absent: empty.
  std::vector<int64_t> list(const std::string& key) const;
  const base::Tree* raw(const std::string& key) const { return has(key) ? tree_.find(key) : nullptr; }

 private:
  base::Tree tree_;
};

struct ReferenceCall {
  int64_t samples = 1;
  std::vector<Numbers> inputs;
  std::vector<Numbers> parameters;
  graph::Pass pass;
};

struct ReferenceGradients {
  std::vector<Numbers> inputs;
  std::vector<Numbers> parameters;
};

class Reference {
 public:
  Reference() = default;
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  virtual ~Reference() = default;

  virtual Numbers forward(const ReferenceCall& call) const = 0;
  virtual ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const = 0;
};

/// `inputs`: sample shapes. Throws std::runtime_error for a type that has no reference.
std::unique_ptr<Reference> make_reference(const std::string& type, const base::Tree& arguments, const std::vector<Shape>& inputs);

// One function a file; null when the type is not among its own.
std::unique_ptr<Reference> make_window_reference(const std::string& type, const Arguments&, const std::vector<Shape>&);
std::unique_ptr<Reference> make_dense_reference(const std::string& type, const Arguments&, const std::vector<Shape>&);
std::unique_ptr<Reference> make_pointwise_reference(const std::string& type, const Arguments&, const std::vector<Shape>&);
std::unique_ptr<Reference> make_move_reference(const std::string& type, const Arguments&, const std::vector<Shape>&);
std::unique_ptr<Reference> make_token_reference(const std::string& type, const Arguments&, const std::vector<Shape>&);
std::unique_ptr<Reference> make_attention_reference(const std::string& type, const Arguments&, const std::vector<Shape>&);
std::unique_ptr<Reference> make_loss_reference(const std::string& type, const Arguments&, const std::vector<Shape>&);

/// Gradients of sum(dy * forward) by central differences with this step.
ReferenceGradients central_differences(const Reference& reference, const ReferenceCall& call, const Numbers& dy, double step);

}  // namespace gpipe::test
