// Pictures to segment, made from a seed: a disc, a square and so on of one class each on a background of class 0, in noise. What
// a pixel shows is its class's colour plus noise, so classes of alike colour are told apart by form alone. Every sample is a pure
// function of (seed, sample).
#include "core/base/rng.h"
#include "data/dataset_types.h"
#include "data/memory.h"

#include <array>
#include <cmath>

namespace gpipe::data {
namespace {

struct ShapesOptions {
  int64_t samples = 1024;
  std::vector<int64_t> size = {32, 32};
  int64_t channels = 1;
  double noise = 0.5;
  int64_t seed = 1;
  std::vector<int64_t> range;
};

constexpr int64_t k_classes = 4;  // background, disc, square, ring

const base::FieldSet<ShapesOptions>& shapes_fields() {
  static const auto fields = [] {
    base::FieldSet<ShapesOptions> f{"shapes"};
    f.add("samples", &ShapesOptions::samples).range(1, 4294967295.0).help("how many there are");
    f.add("size", &ShapesOptions::size).help("height and width, at least 8 each");
    f.add("channels", &ShapesOptions::channels).range(1, 64).help("all with the same picture, each with noise of its own");
    f.add("noise", &ShapesOptions::noise)
        .range(0, 100)
        .help("deviation of the noise; figures are 1 brighter than the background");
    f.add("seed", &ShapesOptions::seed).at_least(0).help("another seed, other pictures; train and validate on ranges of one");
    f.add("range", &ShapesOptions::range).help(range_help);
    return f;
  }();
  return fields;
}

struct Figure {
  double row, column, radius;

  /// Class of the pixel if the figure number `kind` covers it, else 0.
  int32_t at(int kind, int64_t y, int64_t x) const {
    const double dy = static_cast<double>(y) - row, dx = static_cast<double>(x) - column;
    const double distance = std::sqrt(dy * dy + dx * dx);
    bool inside = false;
    if (kind == 1) inside = distance <= radius;
    if (kind == 2) inside = std::max(std::abs(dy), std::abs(dx)) <= radius;
    if (kind == 3) inside = distance <= radius && distance >= 0.6 * radius;
    return inside ? kind : 0;
  }
};

class ShapesDataset final : public train::Dataset {
 public:
  ShapesDataset(const ShapesOptions& options, Range range)
      : seed_(static_cast<uint64_t>(options.seed)), noise_(options.noise), range_(range) {
    spec_.input = {options.size[0], options.size[1], options.channels};
    spec_.target = {options.size[0], options.size[1]};
    spec_.classes = k_classes;
    spec_.class_names = {"background", "disc", "square", "ring"};
  }

  const train::SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return range_.size(); }
  std::string describe() const override { return data::describe(fmt::format("shapes, seed {}", seed_), size(), spec_); }

  void read(int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    const auto sample = static_cast<uint64_t>(range_.first + index);
    const auto figures = figures_of(sample);
    const base::Philox noise(seed_, base::Purpose::synthetic, 2, sample);
    const std::span<float> pixels = train::as_floats(input);
    const std::span<int32_t> classes = train::as_ints(target);
    const int64_t height = spec_.input[0], width = spec_.input[1], channels = spec_.input[2];
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const auto at = static_cast<size_t>(y * width + x);
        classes[at] = 0;
        for (int kind = 1; kind < k_classes; ++kind)  // later figures lie on top
          if (const int32_t covered = figures[static_cast<size_t>(kind)].at(kind, y, x); covered > 0) classes[at] = covered;
        for (int64_t c = 0; c < channels; ++c) {
          const size_t element = at * static_cast<size_t>(channels) + static_cast<size_t>(c);
          pixels[element] = static_cast<float>((classes[at] > 0 ? 1 : 0) + noise_ * noise.normal(element));
        }
      }
  }

 private:
  std::array<Figure, k_classes> figures_of(uint64_t sample) const {
    const base::Philox place(seed_, base::Purpose::synthetic, 1, sample);
    const auto height = static_cast<double>(spec_.input[0]), width = static_cast<double>(spec_.input[1]);
    std::array<Figure, k_classes> figures{};
    for (uint64_t kind = 1; kind < k_classes; ++kind)
      figures[kind] = {height * static_cast<double>(place.uniform(3 * kind)),
                       width * static_cast<double>(place.uniform(3 * kind + 1)),
                       std::min(height, width) * (0.12 + 0.13 * static_cast<double>(place.uniform(3 * kind + 2)))};
    return figures;
  }

  uint64_t seed_;
  double noise_;
  Range range_;
  train::SampleSpec spec_;
};

std::unique_ptr<train::Dataset> open_shapes(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  ShapesOptions options;
  const size_t before = problems.errors().size();
  shapes_fields().read(arguments, path, options, problems);
  check_range(options.range, arguments, path, problems);
  if (options.size.size() != 2 || options.size[0] < 8 || options.size[1] < 8 || options.size[0] > 8192 || options.size[1] > 8192)
    complain(arguments, path, "size", "wanted height and width from 8 to 8192, as in [32, 32]", problems);
  if (problems.errors().size() != before) return nullptr;
  return std::make_unique<ShapesDataset>(options, clip_range(options.range, options.samples, "shapes"));
}

}  // namespace

const train::DatasetType& shapes_dataset() {
  static const train::DatasetType type{"shapes", "discs, squares and rings to segment, made from a seed", open_shapes,
                                       [] { return shapes_fields().table(); }};
  return type;
}

}  // namespace gpipe::data
