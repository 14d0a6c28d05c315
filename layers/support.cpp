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

base::FieldTable no_fields() { return fields().table(); }

}  // namespace gpipe::layers
