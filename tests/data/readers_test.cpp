// The readers on good files: values, shapes, ranges.
#include "tests/data/support.h"

#include <array>
#include <map>
#include <set>

using namespace gpipe;
using test::list;
using test::tree;
using test::word;

TEST_CASE("the digits of this folder are read as anybody's file") {
  const std::string path = (test::source_dir() / "data/digits.csv").string();
  const auto set = test::open("csv", tree({{"path", word(path)}, {"label", word("digit")}, {"shape", list({8, 8, 1})}}));
  CHECK(set->size() == 1797);
  CHECK(set->spec().classes == 10);
  CHECK(set->spec().input == tensor::Shape{8, 8, 1});
  const auto first = test::sample(*set, 0);
  CHECK(first.label == 0);
  CHECK(first.input[2] == 5.0F);
  CHECK(first.input[3] == 13.0F);
  CHECK(test::sample(*set, 1796).label == 8);
  set->recheck();
  test::check_contains(set->describe(), "1,797 samples [8, 8, 1], 10 classes");
}

TEST_CASE("a range takes exactly its samples") {
  const std::string path = (test::source_dir() / "data/digits.csv").string();
  const auto all = test::open("csv", tree({{"path", word(path)}}));
  const auto some = test::open("csv", tree({{"path", word(path)}, {"range", list({100, 103})}, {"classes", word("10")}}));
  REQUIRE(some->size() == 3);
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(test::sample(*some, i).input == test::sample(*all, 100 + i).input);
    CHECK(test::sample(*some, i).label == test::sample(*all, 100 + i).label);
  }
}

TEST_CASE("CSV: quotes, spaces, semicolons, byte-order mark, carriage returns, class names, values") {
  const test::TempFolder folder;
  test::put(folder / "a.csv", "\xEF\xBB\xBF\"the, x\"; y ;kind\r\n 1.5 ;\"2\";cat\r\n\r\n-3;+4e1;\"dog\"");
  const std::string path = (folder / "a.csv").string();
  const auto named = test::open("csv", tree({{"path", word(path)},
                                             {"delimiter", word(";")},
                                             {"label", word("kind")},
                                             {"class_names", test::words({"dog", "cat"})}}));
  REQUIRE(named->size() == 2);
  CHECK(test::sample(*named, 0).input == std::vector<float>{1.5F, 2.0F});
  CHECK(test::sample(*named, 0).label == 1);
  CHECK(test::sample(*named, 1).input == std::vector<float>{-3.0F, 40.0F});
  CHECK(test::sample(*named, 1).label == 0);

  test::put(folder / "b.csv", "1,2,3\n4,5,6\n");
  const auto values = test::open(
      "csv", tree({{"path", word((folder / "b.csv").string())}, {"label", test::words({"2", "0"})}, {"target", word("value")}}));
  CHECK(values->spec().classes == 0);
  CHECK(values->spec().target == tensor::Shape{2});
  CHECK(test::sample(*values, 1).values == std::vector<float>{6.0F, 4.0F});
  CHECK(test::sample(*values, 1).input == std::vector<float>{5.0F});
}

TEST_CASE("CSV: the default label is the last column whatever the columns are called, and no sample is taken for a header") {
  const test::TempFolder folder;
  test::put(folder / "named.csv", "1,2,3,price\n10,20,30,0\n11,21,31,1\n");
  const auto set = test::open("csv", tree({{"path", word((folder / "named.csv").string())}}));
  CHECK(set->size() == 2);
  CHECK(set->spec().classes == 2);
  for (const char* first : {"1,0x2,0", "1e39,2,0", "1e3,1d3,0"}) {
    test::put(folder / "bad.csv", std::string(first) + "\n3,4,1\n5,6,2\n");
    CHECK_THROWS_AS(test::open("csv", tree({{"path", word((folder / "bad.csv").string())}})), base::DataError);
  }
}

TEST_CASE("CSV with no label column and IDX without labels have no targets, and say so") {
  const test::TempFolder folder;
  test::put(folder / "b.csv", "1,2,3\n4,5,6\n");
  const auto csv = test::open("csv", tree({{"path", word((folder / "b.csv").string())}, {"label", base::Tree::list()}}));
  CHECK(!csv->spec().labelled);
  CHECK(csv->spec().input == tensor::Shape{3});
  CHECK(test::sample(*csv, 1).input == std::vector<float>{4.0F, 5.0F, 6.0F});
  CHECK(csv->describe().find("2 samples [3], no targets") != std::string::npos);
  test::put(folder / "images", test::bytes({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3}) + "abcdef");
  const auto idx = test::open("idx", tree({{"images", word((folder / "images").string())}}));
  CHECK(!idx->spec().labelled);
  CHECK(idx->size() == 2);
  CHECK(test::sample(*idx, 1).input == std::vector<float>{100.0F, 101.0F, 102.0F});
}

TEST_CASE("IDX: the MNIST share, from gzip, split by range") {
  const auto folder = test::shared("datasets/mnist");
  if (!folder) return;
  const auto part = [&](int64_t first, int64_t last) {
    return test::open("idx", tree({{"images", word((*folder / "t10k-images-idx3-ubyte.gz").string())},
                                   {"labels", word((*folder / "t10k-labels-idx1-ubyte.gz").string())},
                                   {"range", list({first, last})}}));
  };
  const auto train = part(0, 8000), validation = part(8000, 10000);
  CHECK(train->size() == 8000);
  CHECK(validation->size() == 2000);
  CHECK(train->spec().input == tensor::Shape{28, 28, 1});
  CHECK(train->spec().classes == 10);
  CHECK(test::sample(*train, 0).label == 7);
  CHECK(test::sample(*train, 1).label == 2);
  CHECK(test::sample(*part(1, 2), 0).input == test::sample(*train, 1).input);
}

TEST_CASE("IDX: every type becomes f32, bytes stay as they are") {
  const test::TempFolder folder;
  test::put(folder / "l", test::bytes({0, 0, 8, 1, 0, 0, 0, 2, 1, 0}));
  const auto open = [&](const std::string& content) {
    test::put(folder / "i", content);
    return test::open("idx", tree({{"images", word((folder / "i").string())}, {"labels", word((folder / "l").string())}}));
  };
  const std::string extents = test::bytes({0, 0, 0, 2, 0, 0, 0, 1});
  CHECK(test::sample(*open(test::bytes({0, 0, 0x08, 2}) + extents + test::bytes({3, 255})), 1).input[0] == 255.0F);
  CHECK(test::sample(*open(test::bytes({0, 0, 0x09, 2}) + extents + test::bytes({3, 255})), 1).input[0] == -1.0F);
  CHECK(test::sample(*open(test::bytes({0, 0, 0x0B, 2}) + extents + test::bytes({0, 0, 1, 2})), 1).input[0] == 258.0F);
  CHECK(test::sample(*open(test::bytes({0, 0, 0x0D, 2}) + extents + test::bytes({0, 0, 0, 0, 0xBF, 0xC0, 0, 0})), 1).input[0] ==
        -1.5F);
}

TEST_CASE("synthetic samples depend on the seed and the index alone, and a range is a view of the same task") {
  const auto open = [](int64_t seed, std::vector<int64_t> range) {
    return test::open("synthetic", tree({{"samples", word("100")},
                                         {"shape", list({4, 4, 3})},
                                         {"classes", word("5")},
                                         {"seed", word(std::to_string(seed))},
                                         {"range", list(range)}}));
  };
  const auto all = open(1, {0, 100}), part = open(1, {60, 100}), other = open(2, {0, 100});
  std::set<int32_t> labels;
  for (int64_t i = 0; i < 40; ++i) {
    CHECK(test::sample(*all, 60 + i).input == test::sample(*part, i).input);
    labels.insert(test::sample(*part, i).label);
  }
  CHECK(labels.size() == 5);
  CHECK(test::sample(*all, 0).input != test::sample(*other, 0).input);
}

TEST_CASE("synthetic tokens have the same token to predict for each of a kind, and all are different") {
  const auto set =
      test::open("synthetic", tree({{"samples", word("50")}, {"tokens", word("7")}, {"length", word("9")}, {"seed", word("4")}}));
  CHECK(set->spec().input == tensor::Shape{9});
  CHECK(set->spec().target == tensor::Shape{9});
  CHECK(set->spec().input_type == tensor::DType::i32);
  CHECK(set->spec().classes == 7);
  std::map<int32_t, int32_t> partner;
  std::array<int32_t, 9> input{}, again{}, target{};
  for (int64_t i = 0; i < 50; ++i) {
    set->read(i, std::as_writable_bytes(std::span(input)), std::as_writable_bytes(std::span(target)));
    set->read(i, std::as_writable_bytes(std::span(again)), std::as_writable_bytes(std::span(target)));
    CHECK(input == again);
    for (size_t t = 0; t < input.size(); ++t) CHECK(partner.emplace(input[t], target[t]).first->second == target[t]);
  }
  std::set<int32_t> images;
  for (const auto& [token, other] : partner) {
    CHECK((token >= 0 && token < 7));
    CHECK((other >= 0 && other < 7));
    images.insert(other);
  }
  CHECK(partner.size() == 7);
  CHECK(images.size() == 7);
}
