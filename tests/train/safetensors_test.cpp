// safetensors: reads what the Python package wrote, writes what it reads, refuses what the format forbids.
#include "core/train/safetensors.h"

#include "tests/support/paths.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstring>

using namespace gpipe;
using train::NamedTensor;
using train::Safetensors;
using train::StoredType;

namespace {

template <class T>
std::vector<T> values(const Safetensors& file, const std::string& name) {
  const NamedTensor* tensor = file.find(name);
  REQUIRE(tensor != nullptr);
  std::vector<T> all(tensor->bytes.size() / sizeof(T));
  std::memcpy(all.data(), tensor->bytes.data(), tensor->bytes.size());
  return all;
}

std::vector<std::byte> joined(const train::SafetensorsImage& image) {
  std::vector<std::byte> all;
  for (const auto& part : image.parts()) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// A file with this header (its length set right) and so many bytes of data.
std::vector<std::byte> file_with(const std::string& header, size_t data_bytes) {
  std::vector<std::byte> all(8 + header.size() + data_bytes);
  const uint64_t length = header.size();
  std::memcpy(all.data(), &length, 8);
  std::memcpy(all.data() + 8, header.data(), header.size());
  return all;
}

std::string refusal(std::vector<std::byte> bytes) {
  try {
    Safetensors::parse(std::move(bytes), "x.safetensors");
  } catch (const base::CheckpointError& error) { return error.what(); }
  return "accepted";
}

}  // namespace

TEST_CASE("a file that the Python package wrote is read, name by name") {
  const Safetensors file = Safetensors::read((test::source_dir() / "tests/reference/safetensors_sample.safetensors").string());
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.tensors().size() == 5);
  CHECK(file.find("conv.weight")->shape == std::vector<int64_t>{2, 3, 2, 2});
  CHECK(values<float>(file, "conv.weight")[23] == 5.75F);
  CHECK(values<float>(file, "conv.bias") == std::vector<float>{-1.5F, 2.25F});
  CHECK(file.find("bn.num_batches_tracked")->shape.empty());
  CHECK(values<int64_t>(file, "bn.num_batches_tracked") == std::vector<int64_t>{3});
  CHECK(values<int32_t>(file, "index") == std::vector<int32_t>{1, -2, 3});
  CHECK(values<double>(file, "wide") == std::vector<double>{1e300, -0.0});
  CHECK(file.find("nothing") == nullptr);
}

TEST_CASE("what is written comes back, aligned, in shards as in one file") {
  const std::vector<int32_t> small{1, 2, 3};
  const std::vector<double> wide{0.5, -0.25};
  const std::vector<float> row{1, 2, 3, 4};
  const std::vector<NamedTensor> tensors{{"small", {3}, StoredType::i32, std::as_bytes(std::span(small))},
                                         {"row \"quoted\"", {2, 2}, StoredType::f32, std::as_bytes(std::span(row))},
                                         {"wide", {2, 1}, StoredType::f64, std::as_bytes(std::span(wide))}};
  const Safetensors one = Safetensors::parse(joined(train::make_safetensors("m", tensors, {{"a", "b"}})), "m");
  CHECK(one.metadata().at("a") == "b");
  CHECK(values<double>(one, "wide") == wide);
  CHECK(values<int32_t>(one, "small") == small);
  for (const NamedTensor& tensor : one.tensors()) {
    CHECK(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % train::size_of(tensor.dtype) == 0);
  }

  const train::SafetensorsSet set = train::make_sharded("model", tensors, {}, 20);
  REQUIRE(set.files.size() == 3);
  CHECK(set.files[1].name == "model-00002-of-00003.safetensors");
  const auto index = nlohmann::json::parse(set.index);
  CHECK(index["metadata"]["total_size"] == 44);
  for (const train::SafetensorsImage& image : set.files) {
    const Safetensors part = Safetensors::parse(joined(image), image.name);
    for (const NamedTensor& tensor : part.tensors()) CHECK(index["weight_map"][tensor.name] == image.name);
  }
}

TEST_CASE("a file without tensors is a file") {
  const Safetensors file = Safetensors::parse(joined(train::make_safetensors("m", {}, {})), "m");
  CHECK(file.tensors().empty());
}

TEST_CASE("K7: each wrong header length has its own words") {
  const auto with_length = [](uint64_t length) {
    std::vector<std::byte> bytes(64);
    std::memcpy(bytes.data(), &length, 8);
    return refusal(bytes);
  };
  const std::vector<std::pair<uint64_t, const char*>> rows{{0, "length is 0"},
                                                           {57, "past the file"},
                                                           {100'000'001, "over the limit"},
                                                           {uint64_t{1} << 63, "negative when signed"},
                                                           {UINT64_MAX, "negative when signed"}};
  for (const auto& [length, words] : rows) {
    INFO(length << ": " << with_length(length));
    CHECK(with_length(length).find(words) != std::string::npos);
  }
  CHECK(refusal(std::vector<std::byte>(3)).find("3 bytes") != std::string::npos);
}

TEST_CASE("K8 to K12: headers that the format forbids") {
  struct Row {
    const char* id;
    const char* header;
    size_t data;
    const char* words;
  };
  const std::vector<Row> rows{
      {"K8", R"(["a"])", 0, "brace"},
      {"K8", R"({"a")", 0, "not valid JSON"},
      {"K8", R"({"a":{"dtype":"F32","shape":[1]}})", 4, "wanted exactly"},
      {"K8", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "wanted exactly"},
      {"K9", R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0, "no elements"},
      {"K9", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
       "overlaps"},
      {"K9", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "gap"},
      {"K9", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "end at byte 4"},
      {"K9", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "ends at byte 4"},
      {"K9", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "not [begin, end]"},
      {"K9", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "not [begin, end]"},
      {"K10", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4, "overflows"},
      {"K10", R"({"a":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,4]}})", 4, "overflows"},
      {"K10", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,4]}})", 4, "needs 12 bytes, its offsets span 4"},
      {"K10", R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "whole numbers"},
      {"K10", R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "whole numbers"},
      {"K11", R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype \"F31\""},
      {"K11", R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype 7"},
      {"K12", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
       "\"a\" stands there twice"},
      {"K12", R"({"__metadata__":{"a":1}})", 0, "not text"},
      {"K12", R"({"__metadata__":[]})", 0, "not a map"},
  };
  for (const Row& row : rows) {
    const std::string said = refusal(file_with(row.header, row.data));
    INFO(row.id << " " << row.header << ": " << said);
    CHECK(said.find(row.words) != std::string::npos);
    CHECK(said.find("x.safetensors") == 0);
  }
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{\"a\":";
  CHECK(refusal(file_with(deep, 0)).find("deeper") != std::string::npos);
}

TEST_CASE("no damage to the sample is ever a crash or a silent change of size") {
  const Safetensors good = Safetensors::read((test::source_dir() / "tests/reference/safetensors_sample.safetensors").string());
  std::vector<NamedTensor> tensors = good.tensors();
  const std::vector<std::byte> bytes = joined(train::make_safetensors("m", tensors, good.metadata()));
  for (size_t length = 0; length < bytes.size(); ++length) {
    CHECK(refusal({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)}) != "accepted");
  }
  for (size_t bit = 0; bit < 64 * 8; ++bit) {  // the length and the begin of the header
    std::vector<std::byte> bad = bytes;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    refusal(std::move(bad));
  }
}
