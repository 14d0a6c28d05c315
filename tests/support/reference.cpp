#include "tests/support/reference.h"

#include "tests/support/central_difference.h"

#include <stdexcept>

namespace gpipe::test {
namespace {

std::vector<int64_t> integers_of(const base::Tree& tree) {
  std::vector<int64_t> all;
  if (tree.is_list())
    for (const base::Tree& item : tree.items()) all.push_back(std::stoll(item.text()));
  else
    all.push_back(std::stoll(tree.text()));
  return all;
}

double weighted_sum(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

double Arguments::number(const std::string& key, double otherwise) const {
  return has(key) ? std::stod(tree_.find(key)->text()) : otherwise;
}
int64_t Arguments::integer(const std::string& key, int64_t otherwise) const {
  return has(key) ? std::stoll(tree_.find(key)->text()) : otherwise;
}
bool Arguments::truth(const std::string& key, bool otherwise) const {
  return has(key) ? tree_.find(key)->text() == "true" : otherwise;
}
std::string Arguments::word(const std::string& key, const std::string& otherwise) const {
  return has(key) ? tree_.find(key)->text() : otherwise;
}
std::vector<int64_t> Arguments::pair(const std::string& key, int64_t otherwise) const {
  std::vector<int64_t> values = has(key) ? integers_of(*tree_.find(key)) : std::vector<int64_t>{otherwise};
  if (values.size() == 1) values.push_back(values[0]);
  return values;
}

std::vector<int64_t> Arguments::list(const std::string& key) const {
  return has(key) ? integers_of(*tree_.find(key)) : std::vector<int64_t>{};
}

std::unique_ptr<Reference> make_reference(const std::string& type, const base::Tree& arguments,
                                          const std::vector<Shape>& inputs) {
  const Arguments read(arguments);
  for (const auto make : {make_window_reference, make_dense_reference, make_pointwise_reference, make_move_reference,
                          make_token_reference, make_attention_reference, make_loss_reference})
    if (std::unique_ptr<Reference> reference = make(type, read, inputs)) return reference;
  throw std::runtime_error("no reference for node type " + type);
}

ReferenceGradients central_differences(const Reference& reference, const ReferenceCall& call, const Numbers& dy, double step) {
  ReferenceCall probe = call;
  const auto slopes = [&](std::vector<Numbers>& all) {
    std::vector<Numbers> result;
    for (Numbers& values : all) {
      Numbers slope;
      for (double& value : values)
        slope.push_back(central_difference(value, step, [&] { return weighted_sum(reference.forward(probe), dy); }));
      result.push_back(std::move(slope));
    }
    return result;
  };
  return {slopes(probe.inputs), slopes(probe.parameters)};
}

}  // namespace gpipe::test
