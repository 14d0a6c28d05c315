#include "layers/support.h"

namespace gpipe::layers {
namespace {

struct NoArguments {};

const base::FieldSet<NoArguments>& fields() {
  static const base::FieldSet<NoArguments> none{"arguments"};
  return none;
}

}  // namespace

bool read_no_arguments(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  const size_t before = problems.errors().size();
  NoArguments none;
  fields().read(arguments, path, none, problems);
  return problems.errors().size() == before;
}

Batches rows_of(const PlanContext& context, size_t index) {
  const auto rows = [&](const Shape& shape, int64_t samples) { return samples * (shape.elements() / shape.back()); };
  Batches all;
  if (!context.widest_inputs.empty()) all.push_back(rows(context.widest_inputs[index], context.batches.front()));
  for (const int64_t samples : context.batches) all.push_back(rows(context.inputs[index], samples));
  if (all.size() > 1 && all[0] == all[1]) all.erase(all.begin());
  return all;
}

base::FieldTable no_fields() { return fields().table(); }

}  // namespace gpipe::layers
