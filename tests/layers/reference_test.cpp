// The references themselves, against central differences of their own forward.
#include "tests/support/reference.h"

#include "tests/support/node_run.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace gpipe;
using namespace gpipe::test;

namespace {

Numbers to_numbers(const Floats& values) { return Numbers(values.begin(), values.end()); }

ReferenceCall call_of(const OpCase& c, const NodeData& data, size_t micro) {
  ReferenceCall call;
  call.samples = c.micro_batches[micro];
  call.pass = pass_of(c, micro);
  for (const Floats& values : data.inputs[micro]) call.inputs.push_back(to_numbers(values));
  for (const Floats& values : data.parameters) call.parameters.push_back(to_numbers(values));
  return call;
}

void expect_close(const std::vector<Numbers>& found, const std::vector<Numbers>& wanted, const std::string& what) {
  REQUIRE(found.size() == wanted.size());
  for (size_t t = 0; t < wanted.size(); ++t) {
    REQUIRE(found[t].size() == wanted[t].size());
    for (size_t i = 0; i < wanted[t].size(); ++i)
      if (!(std::abs(found[t][i] - wanted[t][i]) <= 1e-5 + 1e-3 * std::abs(wanted[t][i])))
        FAIL_CHECK(what << " " << t << "[" << i << "]: " << found[t][i] << ", central difference " << wanted[t][i]);
  }
}

}  // namespace

TEST_CASE("every node type has at least twenty cases that central differences can check") {
  std::map<std::string, std::set<std::string>> small;
  for (const OpCase& c : op_cases())
    if (!c.large) small[c.type].insert(c.text());
  for (const graph::LayerType* type : {
#define GPIPE_LAYER(name) &layer_type(#name),
#include "layers/list.def"
#undef GPIPE_LAYER
       }) {
    CAPTURE(type->name);
    CHECK(small[type->name].size() >= 20);
  }
}

TEST_CASE("every reference's backward is the slope of its forward") {
  for (const OpCase& c : op_cases()) {
    if (c.large) continue;
    CAPTURE(c.text());
    const NodeData data = make_data(c);
    const auto reference = make_reference(c.type, c.tree(), c.inputs);
    ReferenceCall call = call_of(c, data, 0);
    const Numbers dy = to_numbers(data.dy[0]);
    ReferenceGradients wanted = central_differences(*reference, call, dy, 1e-6);
    ReferenceGradients found = reference->backward(call, dy);
    for (const Ids& ids : c.ids) {  // integers have no slope
      wanted.inputs[ids.input].clear();
      found.inputs[ids.input].clear();
    }
    if (const Arguments a(c.tree()); a.integer("padding_idx", -1) >= 0) {  // its vector is read, and by definition not trained
      const int64_t row = a.integer("embedding_dim", 1);
      std::fill_n(wanted.parameters[0].begin() + a.integer("padding_idx", -1) * row, row, 0.0);
    }
    expect_close(found.inputs, wanted.inputs, "input");
    expect_close(found.parameters, wanted.parameters, "parameter");
  }
}
