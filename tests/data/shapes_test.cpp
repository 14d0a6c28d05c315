// The pictures of `shapes`: pure functions of the seed and the sample, with a class at every pixel.
#include "app/yaml_tree.h"
#include "tests/data/support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

using namespace gpipe;

namespace {

struct Picture {
  std::vector<float> pixels;
  std::vector<int32_t> classes;
};

Picture picture(const train::Dataset& set, int64_t index) {
  Picture p;
  p.pixels.resize(static_cast<size_t>(set.spec().input.elements()));
  p.classes.resize(static_cast<size_t>(set.spec().target.elements()));
  set.read(index, std::as_writable_bytes(std::span(p.pixels)), std::as_writable_bytes(std::span(p.classes)));
  return p;
}

std::unique_ptr<train::Dataset> open(const std::string& yaml) { return test::open("shapes", app::parse_yaml(yaml, "shapes")); }

}  // namespace

TEST_CASE("a picture has a class at every pixel, and its brightness follows the figures") {
  const auto set = open("{samples: 50, size: [24, 40], channels: 2, noise: 0}");
  CHECK(set->spec().input == tensor::Shape{24, 40, 2});
  CHECK(set->spec().target == tensor::Shape{24, 40});
  std::set<int32_t> seen;
  for (int64_t i = 0; i < set->size(); ++i) {
    const Picture p = picture(*set, i);
    for (size_t at = 0; at < p.classes.size(); ++at) {
      seen.insert(p.classes[at]);
      REQUIRE(p.pixels[2 * at] == (p.classes[at] > 0 ? 1.0F : 0.0F));
      REQUIRE(p.pixels[2 * at + 1] == p.pixels[2 * at]);
    }
  }
  CHECK(seen == std::set<int32_t>{0, 1, 2, 3});
}

TEST_CASE("a sample is the same in whatever range it is read, and differs from its neighbours") {
  const auto all = open("{samples: 20, noise: 0.5}"), part = open("{samples: 20, noise: 0.5, range: [7, 9]}");
  CHECK(part->size() == 2);
  CHECK(picture(*all, 7).pixels == picture(*part, 0).pixels);
  CHECK(picture(*all, 7).classes == picture(*part, 0).classes);
  CHECK(picture(*all, 7).pixels != picture(*all, 8).pixels);
}

TEST_CASE("sizes that are none are refused") {
  CHECK_THROWS_AS(open("{size: [4, 32]}"), base::ConfigError);
  CHECK_THROWS_AS(open("{size: [32]}"), base::ConfigError);
  CHECK_THROWS_AS(open("{noise: -1}"), base::ConfigError);
}
