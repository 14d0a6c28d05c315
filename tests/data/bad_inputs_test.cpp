// Files that are wrong in every way we know: each is refused with a DataError that names the file and says what was found.
#include "tests/data/support.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fcntl.h>

using namespace gpipe;
using test::bytes;
using test::check_contains;
using test::complaint;
using test::gzip;
using test::list;
using test::tree;
using test::word;

namespace {

struct Row {
  const char* id;
  std::string content;
  std::string words;
};

const std::string idx_images = bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2}) + "abcdefgh";
const std::string idx_labels = bytes({0, 0, 8, 1, 0, 0, 0, 2, 1, 0});

/// A file of each kind in a folder, and the arguments that name them.
struct Idx {
  Idx() {
    test::put(folder / "images", idx_images);
    test::put(folder / "labels", idx_labels);
  }
  base::Tree arguments() const {
    return tree({{"images", word((folder / "images").string())}, {"labels", word((folder / "labels").string())}});
  }
  test::TempFolder folder;
};

std::string npy(const std::string& dictionary, const std::string& data, int version = 1) {
  std::string header = dictionary + "\n";
  std::string text =
      "\x93NUMPY" + bytes({version, 0, static_cast<int>(header.size() % 256), static_cast<int>(header.size() / 256)});
  if (version > 1) text += bytes({0, 0});
  return text + header + data;
}

}  // namespace

TEST_CASE("the good files of these tests are good") {
  Idx idx;
  CHECK(test::open("idx", idx.arguments())->size() == 2);
  test::put(idx.folder / "images", gzip(idx_images));
  const auto set = test::open("idx", idx.arguments());
  CHECK(test::sample(*set, 1).input == std::vector<float>{'e', 'f', 'g', 'h'});
}

TEST_CASE("D1 to D14: bad IDX files") {
  const std::string header = idx_images.substr(0, 16);
  const std::vector<Row> rows{
      {"D1", "", "header needs 8 bytes, the file has 0"},
      {"D1", "a", "header needs 8 bytes, the file has 1"},
      {"D1", bytes({0, 0, 8}), "header needs 8 bytes, the file has 3"},
      {"D1", bytes({0, 0, 8, 3}), "header needs 16 bytes, the file has 4"},
      {"D1", idx_images.substr(0, 15), "header needs 16 bytes, the file has 15"},
      {"D2", "PK\x03\x04" + idx_images, "found 50 4b 03 04, wanted 00 00"},
      {"D3", bytes({0, 0, 0x0A, 3}) + idx_images.substr(4), "unsupported IDX type 0x0a"},
      {"D3", bytes({0, 0, 0x0F, 3}) + idx_images.substr(4), "unsupported IDX type 0x0f"},
      {"D3", bytes({0, 0, 8, 0}) + idx_images.substr(4), "0 axes"},
      {"D3", bytes({0, 0, 8, 200}) + idx_images.substr(4), "200 axes"},
      {"D5", bytes({0, 0, 8, 3, 0x80, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4}), "more than the file of 16 bytes can hold"},
      {"D5", bytes({0, 0, 8, 4}) + std::string(16, '\xff'), "can hold"},
      {"D5", gzip(bytes({0, 0, 8, 3, 0x80, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4})), "more than the file"},
      {"D7", idx_images.substr(0, 23), "need 24 bytes, the file has 23"},
      {"D7", idx_images + "x", "need 24 bytes, the file has 25"},
      {"D7", gzip(idx_images.substr(0, 23)), "promises 24 bytes, unpacked there are 23"},
      {"D7", gzip(idx_images + "x"), "promises 24 bytes, unpacked there are 25"},
      {"D8", bytes({0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2}), "no samples"},
      {"D8", bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2}), "extent 1 is 0"},
      {"D10", idx_labels, "this is a file of labels, wanted images"},
      {"D12", bytes({3, 8, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0}) + "abcdefgh", "looks little-endian"},
      {"D12", bytes({0, 0, 8, 3, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0}) + "abcdefgh", "look little-endian"},
      {"D14", gzip(idx_images).substr(0, 30), "the gzip stream is cut off"},
      {"D14", gzip(idx_images) + "more", "4 bytes follow the gzip stream"},
      {"D23", bytes({0, 0, 0x0D, 2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x7F, 0xC0, 0, 0}), "sample 1 is nan"},
  };
  for (const Row& row : rows) {
    Idx idx;
    test::put(idx.folder / "images", row.content);
    const std::string said = complaint<base::DataError>("idx", idx.arguments());
    INFO(row.id);
    check_contains(said, row.words);
    check_contains(said, "/images: ");
  }
  std::string damaged = gzip(idx_images);
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // the check value
  Idx idx;
  test::put(idx.folder / "images", damaged);
  check_contains(complaint<base::DataError>("idx", idx.arguments()), "incorrect data check");
}

TEST_CASE("D10, D11: bad IDX labels") {
  const std::vector<Row> rows{
      {"D10", idx_images, "this is a file of images"},
      {"D10", bytes({0, 0, 0x0D, 1, 0, 0, 0, 2}) + std::string(8, '\0'), "wanted one axis of integers"},
      {"D11", bytes({0, 0, 8, 1, 0, 0, 0, 3, 1, 0, 1}), "3 labels for the 2 samples"},
      {"D11", bytes({0, 0, 0x0C, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF}), "label -1 at index 1 is not in [0,"},
  };
  for (const Row& row : rows) {
    Idx idx;
    test::put(idx.folder / "labels", row.content);
    INFO(row.id);
    check_contains(complaint<base::DataError>("idx", idx.arguments()), row.words);
  }
  Idx idx;
  test::put(idx.folder / "labels", bytes({0, 0, 8, 1, 0, 0, 0, 2, 255, 255}));
  auto arguments = idx.arguments();
  arguments.set("classes", word("10"));
  check_contains(complaint<base::DataError>("idx", arguments),
                 "label 255 at index 0 is not in [0, 10); 2 of 2 labels are outside");
}

TEST_CASE("D16, D17: bad CIFAR files") {
  const test::TempFolder folder;
  const auto said = [&](const std::string& content, const char* variant, const char* labels = "fine") {
    test::put(folder / "batch", content);
    return complaint<base::DataError>(
        "cifar",
        tree({{"variant", word(variant)}, {"labels", word(labels)}, {"files", test::words({(folder / "batch").string()})}}));
  };
  const std::string record(3072, 'x');
  check_contains(said("\x01" + record + "abc", "10"), "3076 bytes are 1 records of 3073 and 3 bytes over");
  check_contains(said("\x01" + record + "\x0A" + record, "10"), "record 1 (byte 3073): label 10 is not in [0, 10)");
  check_contains(said("\x14\x01" + record, "100", "coarse"), "record 0 (byte 0): label 20 is not in [0, 20)");
  check_contains(said("\x01\x64" + record, "100"), "record 0 (byte 1): label 100 is not in [0, 100)");
  check_contains(said("", "10"), "the file is empty");
  check_contains(said(gzip("\x01" + record + "abc"), "10"), "3 bytes over");
}

TEST_CASE("CIFAR planes become pixels, and coarse and fine labels are told apart") {
  const test::TempFolder folder;
  std::string record = bytes({3, 42}) + std::string(1024, 'r') + std::string(1024, 'g') + std::string(1024, 'b');
  test::put(folder / "batch", record + record);
  const auto open = [&](const char* labels) {
    return test::open("cifar", tree({{"variant", word("100")},
                                     {"labels", word(labels)},
                                     {"files", test::words({(folder / "batch").string(), (folder / "batch").string()})},
                                     {"range", list({1, 4})}}));
  };
  const auto set = open("fine");
  CHECK(set->size() == 3);
  CHECK(test::sample(*set, 2).label == 42);
  CHECK(test::sample(*open("coarse"), 0).label == 3);
  CHECK(test::sample(*set, 0).input[3] == 'r');
  CHECK(test::sample(*set, 0).input[4] == 'g');
  CHECK(test::sample(*set, 0).input[5] == 'b');
}

TEST_CASE("NPY: types, byte orders and versions are read, D18 to D23 are refused") {
  const test::TempFolder folder;
  test::put(folder / "labels.npy", npy("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }",
                                       std::string("\1\0\0\0\0\0\0\0", 8) + std::string(8, '\0')));
  const auto arguments =
      tree({{"inputs", word((folder / "inputs.npy").string())}, {"labels", word((folder / "labels.npy").string())}});
  const auto first = [&](const std::string& content) {
    test::put(folder / "inputs.npy", content);
    const auto set = test::open("npy", arguments);
    CHECK(test::sample(*set, 0).label == 1);
    return test::sample(*set, 0).input;
  };
  CHECK(first(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2), }", "\x01\xFF\x03\x04")) ==
        std::vector<float>{1, 255});
  CHECK(first(npy("{\"shape\": (2,1), \"fortran_order\": False, \"descr\": \"<f4\"}", std::string("\0\0\x80\x3f\0\0\0\0", 8),
                  2)) == std::vector<float>{1});
  CHECK(first(npy("{'descr': '>f8', 'fortran_order': False, 'shape': (2, 1), }",
                  std::string("\x3f\xf8\0\0\0\0\0\0", 8) + std::string(8, '\0'))) == std::vector<float>{1.5F});

  const std::string four(4, '\0');
  const std::vector<Row> rows{
      {"D18", "NUMPY", "not an NPY file"},
      {"D18", "PK\x03\x04      ", "NPZ archive"},
      {"D18", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }", four + four, 9), "NPY version 9"},
      {"D18", std::string("\x93NUMPY\1\0\xff\x7f{}", 12), "a header of 32767 bytes, the file ends 2 bytes"},
      {"D19", std::string("\x93NUMPY\2\0\xff\xff\xff\xff{}", 14), "a header of 4294967295 bytes, the limit is"},
      {"D20", npy("{'descr': '|O', 'fortran_order': False, 'shape': (2, 1), }", four), "Python objects"},
      {"D20", npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 1), }", four), "structured array"},
      {"D20", npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }", four + four), "Fortran order"},
      {"D20", npy("{'descr': '<c8', 'fortran_order': False, 'shape': (2, 1), }", four), "unsupported NPY type '<c8'"},
      {"D22", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1000000000000), }", four), "can hold"},
      {"D22", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9), }", four), "can hold"},
      {"D22", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }", four + four + "x"), "the file has"},
      {"D22", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 1), }", four), "not a tuple"},
      {"D22", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1), }", ""), "no samples"},
      {"D22", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", four), "a single number"},
      {"D18", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), 'x': 1}", four), "unknown key"},
      {"D18", npy("{'descr': '<f4', 'descr': '<f4', 'shape': (2, 1)}", four), "twice"},
      {"D18", npy("__import__('os')", four), "wanted '{'"},
      {"D18", npy("{'descr': '<f4'}", four), "is missing"},
      {"D23",
       npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 1), }",
           std::string(8, '\0') + std::string("\0\0\0\0\0\0\xf0\x7f", 8)),
       "sample 1 is inf"},
      {"D11", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }", four), "2 labels for the 1 samples"},
  };
  for (const Row& row : rows) {
    test::put(folder / "inputs.npy", row.content);
    INFO(row.id << " " << row.content);
    check_contains(complaint<base::DataError>("npy", arguments), row.words);
  }
}

TEST_CASE("bad CSV files are refused with file and line") {
  const test::TempFolder folder;
  const std::string path = (folder / "a.csv").string();
  const std::vector<std::pair<std::string, std::string>> rows{
      {"", "a.csv: there are no samples"},
      {"a,b\n", "a.csv: there are no samples"},
      {"1,2,0\n1,0\n", "a.csv:2: 2 columns, wanted 3"},
      {"1,2,0\n1,x,0\n", "a.csv:2: column 1 (from 0) is \"x\", wanted a number"},
      {"1,,0\n", "a.csv:1: column 1 (from 0) is empty"},
      {"1,nan,0\n", "a.csv:1: column 1 (from 0) of sample 0 is nan"},
      {"1,2,0\n1,inf,0\n", "a.csv:2: column 1 (from 0) of sample 1 is inf"},
      {"1,1e400,0\n", "wanted a number"},
      {"1,2,0.5\n", "label \"0.5\" is not a whole number"},
      {"1,2,-1\n", "label -1 at index 0 is not in [0,"},
      {"1,\"2,0\n", "a quoted field is not closed"},
      {"0\n1\n", "no column is left for the inputs"},
      {std::string("1,2\0,0\n", 7), "is \"2\\x00\", wanted a number"},
  };
  for (const auto& [content, words] : rows) {
    test::put(path, content);
    INFO(content);
    check_contains(complaint<base::DataError>(
                       "csv", tree({{"path", word(path)}, {"header", word(content.starts_with('a') ? "yes" : "no")}})),
                   words);
  }
  test::put(path, "x,y\n1,0\n");
  check_contains(complaint<base::DataError>("csv", tree({{"path", word(path)}, {"label", word("z")}})), "no column \"z\"");
  check_contains(complaint<base::DataError>("csv", tree({{"path", word(path)}, {"shape", list({2, 2})}})),
                 "shape [2, 2] wants 4 columns");
  check_contains(complaint<base::DataError>("csv", tree({{"path", word(path)}, {"range", list({0, 2})}})),
                 "goes past the 1 samples");
  test::put(path, std::string(size_t{17} << 20, '1'));
  check_contains(complaint<base::DataError>("csv", tree({{"path", word(path)}})), "the line is longer than");
}

TEST_CASE("D26: a file that grew, was written to, replaced or removed is noticed") {
  Idx idx;
  const auto set = test::open("idx", idx.arguments());
  set->recheck();
  const auto said = [&] {
    try {
      set->recheck();
    } catch (const base::DataError& error) { return std::string(error.what()); }
    return std::string();
  };
  const auto images = idx.folder / "images";
  test::put(images, idx_images + "x");
  check_contains(said(), "24 bytes when opened, 25 now");
  test::put(images, idx_images);
  const timespec times[2]{{1, 0}, {1, 0}};
  utimensat(AT_FDCWD, images.c_str(), times, 0);
  check_contains(said(), "written to");
  std::filesystem::remove(images);
  check_contains(said(), "gone");
}

TEST_CASE("D28: only regular files are opened, and a pipe blocks nothing") {
  Idx idx;
  const auto images = idx.folder / "images";
  const auto said = [&] { return complaint<base::DataError>("idx", idx.arguments()); };
  std::filesystem::remove(images);
  check_contains(said(), "No such file");
  std::filesystem::create_symlink("images", images);
  check_contains(said(), "loop of symbolic links");
  std::filesystem::remove(images);
  REQUIRE(mkfifo(images.c_str(), 0600) == 0);
  check_contains(said(), "is a pipe");
  std::filesystem::remove(images);
  std::filesystem::create_directory(images);
  check_contains(said(), "is a folder");
  std::filesystem::remove(images);
  std::filesystem::create_symlink("/dev/zero", images);
  check_contains(said(), "is a device");
}

TEST_CASE("faults of the configuration are told as such, with the dotted path, and no file is opened") {
  const auto said = [](const std::string& name, base::Tree arguments) { return complaint<base::ConfigError>(name, arguments); };
  check_contains(said("npy", tree({{"inputs", word("/nowhere")}})), "data.train.npy.labels");
  check_contains(said("idx", tree({{"images", word("a")}, {"labels", word("b")}, {"range", list({5, 5})}})), "0 <= first < last");
  check_contains(said("csv", tree({{"path", word("a")}, {"delimiter", word("ab")}})), "wanted one character");
  check_contains(said("csv", tree({{"path", word("a")}, {"shape", list({0})}})), "data.train.csv.shape");
  check_contains(said("cifar", tree({{"files", test::words({"a"})}, {"variant", word("11")}})), "wanted 10 or 100");
  check_contains(said("cifar", tree({{"files", base::Tree::list()}})), "the list is empty");
  check_contains(said("image_folder", tree({{"path", word("a")}, {"size", list({32})}})), "[height, width]");
  check_contains(said("image_folder", tree({{"path", word("a")}, {"size", list({32, 100000})}})), "8192");
  check_contains(said("synthetic", tree({{"classes", word("1")}})), "one class leaves nothing to learn");
  check_contains(said("synthetic", tree({{"tokens", word("1")}})), "one token leaves nothing to learn");
  check_contains(said("synthetic", tree({{"tokens", word("5")}, {"shape", list({4})}})), "data.train.synthetic.shape");
  check_contains(said("synthetic", tree({{"sampels", word("1")}})), "samples");
}

TEST_CASE("D30: an image folder without pictures or classes") {
  const test::TempFolder folder;
  const auto said = [&] {
    return complaint<base::DataError>("image_folder", tree({{"path", word(folder.path().string())}, {"size", list({2, 2})}}));
  };
  check_contains(said(), "0 sub-folders with pictures");
  std::filesystem::create_directory(folder / "a");
  check_contains(said(), "no JPEG or PNG file");
}

TEST_CASE("every data set of the list has a name, a summary and help for each of its keys") {
  for (const train::DatasetType* type : data::dataset_types()) {
    CHECK_FALSE(type->summary.empty());
    const auto table = type->fields();
    CHECK(table.name == type->name);
    for (const auto& info : table.infos) CHECK_FALSE(info.help.empty());
  }
}
