// Text, tokens, models and translations that are wrong: each refused with an error that names the file and says what was found.
#include "tests/data/text_support.h"

using namespace gpipe;
using test::check_contains;
using test::complaint;
using test::list;
using test::tree;
using test::word;
using test::words;

namespace {

struct Place {
  Place() {
    test::put(folder / "model", test::rhyme_model(true, 250));
    test::put(folder / "a", "the mill\nthe sun\n");
    test::put(folder / "b", "no\nyes\n");
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  base::Tree text(const std::string& key = "", const std::string& value = "") const {
    base::Tree arguments = tree({{"path", word(path("a"))}, {"length", word("4")}});
    if (!key.empty()) arguments.set(key, word(value));
    return arguments;
  }
  base::Tree bin() const { return tree({{"files", words({path("bin")})}, {"length", word("1")}}); }
  base::Tree parallel(const std::string& tag = "<de>") const {
    const base::Tree pair = tree({{"source", word(path("a"))}, {"target", word(path("b"))}, {"tag", word(tag)}});
    return tree({{"model", word(path("model"))},
                 {"pairs", base::Tree::list({pair})},
                 {"source_length", word("12")},
                 {"target_length", word("12")}});
  }
  test::TempFolder folder;
};

std::string bad_data(const std::string& name, const base::Tree& arguments) { return complaint<base::DataError>(name, arguments); }
std::string bad_setting(const std::string& name, const base::Tree& arguments) {
  return complaint<base::ConfigError>(name, arguments);
}

}  // namespace

TEST_CASE("the good files of these tests are good") {
  const Place place;
  test::put(place.folder / "bin", test::little_endian<uint16_t>({1, 2, 3}));
  CHECK(test::open("text", place.text())->size() == 4);
  CHECK(test::open("text", place.text("model", place.path("model")))->size() > 0);
  CHECK(test::open("tokens", place.bin())->size() == 2);
  CHECK(test::open("parallel", place.parallel())->size() == 2);
}

TEST_CASE("bad text: missing, empty, too short, not UTF-8, characters that the vocabulary lacks") {
  const Place place;
  check_contains(bad_data("text", place.text("path", "/nowhere/a")), "/nowhere/a: cannot be opened");
  check_contains(bad_data("text", place.text("path", place.folder.path().string())), "is a folder");
  check_contains(bad_data("text", place.text("length", "17")), "17 tokens are too few for a sample of 17");
  test::put(place.folder / "v", "the mil\n");
  check_contains(bad_data("text", place.text("vocabulary", place.path("v"))), "byte 13: the character U+0073 (s)");
  struct Row {
    std::string content, words;
  };
  for (const Row& row :
       {Row{"", "the file is empty"}, Row{"\xEF\xBB\xBF", "the file is empty"}, Row{"abc\xFF", "byte 3 begins"},
        Row{"ab\xC3", "byte 2 begins"}, Row{"a\xC0\xAF", "byte 1 begins"}, Row{"\xED\xA0\x80zzzzz", "byte 0 begins"},
        Row{"a\xF4\x90\x80\x80", "byte 1 begins"}, Row{"a\xE0\x80\xAFx", "byte 1 begins"}}) {
    test::put(place.folder / "a", row.content);
    check_contains(bad_data("text", place.text()), place.path("a") + ": " + row.words);
  }
  test::put(place.folder / "a", "good line\nbad \xFF line\n");
  check_contains(bad_data("text", place.text("model", place.path("model"))), place.path("a") + ":2: byte 4 begins");
  test::put(place.folder / "a", test::gzip("the mill and the river").substr(0, 30));
  check_contains(bad_data("text", place.text()), "cut off");
}

TEST_CASE("bad settings of text") {
  const Place place;
  for (const auto& range : {words({"0.9", "0.1"}), words({"0", "1.5"}), words({"-1", "5"}), words({"1"}), word("3"),
                            words({"0.5", "0.5"}), words({"a", "b"})}) {
    base::Tree arguments = place.text();
    arguments.set("range", range);
    check_contains(bad_setting("text", arguments), "range");
  }
  base::Tree arguments = place.text("tokens", "bytes");
  arguments.set("vocabulary", word("x"));
  check_contains(bad_setting("text", arguments), "is for tokens: characters");
  arguments = place.text("tokens", "characters");
  arguments.set("model", word("x"));
  check_contains(bad_setting("text", arguments), "keep one of model and tokens");
  arguments = place.text();
  arguments.set("range", list({5, 100}));
  check_contains(bad_data("text", arguments), "goes past the 17 tokens");
}

TEST_CASE("a model that is none") {
  const Place place;
  for (const std::string& content : {std::string(), std::string("no model"), test::rhyme_model(true, 250).substr(0, 2000)}) {
    test::put(place.folder / "model", content);
    check_contains(bad_data("text", place.text("model", place.path("model"))), "this is no SentencePiece model");
  }
  check_contains(bad_data("text", place.text("model", "/nowhere/m")), "/nowhere/m: cannot be opened");
}

TEST_CASE("bad files of tokens") {
  const Place place;
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 3;
  const std::string three = test::little_endian<uint16_t>({1, 2, 3});
  const auto refused = [&](const std::string& content) {
    test::put(place.folder / "bin", content);
    return bad_data("tokens", place.bin());
  };
  check_contains(refused(""), "the file is empty");
  check_contains(refused("abc"), "3 bytes are no whole number of tokens of 2 bytes");
  check_contains(refused(test::little_endian<uint16_t>({1})), "1 tokens are too few");
  check_contains(refused(test::little_endian(header) + three.substr(2)), "3 tokens of 2 bytes, which makes 1030 bytes");
  check_contains(refused(test::little_endian(header) + three + "xy"), "the file has 1032");
  header[2] = -1;
  check_contains(refused(test::little_endian(header) + three), "says -1 tokens");
  header[1] = 2;
  check_contains(refused(test::little_endian(header) + three), "version 2 of llm.c's tokens, wanted 1");
  test::put(place.folder / "bin", three);
  base::Tree arguments = place.bin();
  arguments.set("classes", word("3"));
  check_contains(bad_data("tokens", arguments), "token 3 at index 2 is not in [0, 3)");
  arguments = place.bin();
  test::put(place.folder / "bin", test::little_endian<uint32_t>({1, 0xFFFFFFFF}));
  arguments.set("type", word("uint32"));
  check_contains(bad_data("tokens", arguments), "token 4294967295 at index 1");
  arguments.set("files", base::Tree::list());
  check_contains(bad_setting("tokens", arguments), "at least one file");
  arguments.set("files", words({"/nowhere/t.bin"}));
  check_contains(bad_data("tokens", arguments), "/nowhere/t.bin: cannot be opened");
}

TEST_CASE("bad translations: lines of different count, an unknown tag, no text, bad UTF-8") {
  const Place place;
  check_contains(bad_data("parallel", place.parallel("<xx>")), "it has no token \"<xx>\"");
  test::put(place.folder / "b", "no\nyes\nmore\n");
  check_contains(bad_data("parallel", place.parallel()), "has 2 lines, " + place.path("b") + " has 3");
  test::put(place.folder / "b", "no\n");
  check_contains(bad_data("parallel", place.parallel()), "has 2 lines, " + place.path("b") + " has 1");
  test::put(place.folder / "b", "no\n\xFFyes\n");
  check_contains(bad_data("parallel", place.parallel()), place.path("b") + ":2: byte 0 begins");
  test::put(place.folder / "a", "");
  test::put(place.folder / "b", "");
  check_contains(bad_data("parallel", place.parallel()), "there are no samples");
  base::Tree arguments = place.parallel();
  arguments.set("pairs", base::Tree::list());
  check_contains(bad_setting("parallel", arguments), "wanted a list");
  arguments.set("pairs", base::Tree::list({tree({{"source", word("x")}, {"targt", word("y")}})}));
  check_contains(bad_setting("parallel", arguments), "did you mean \"target\"");
}

TEST_CASE("bad buckets: not pairs of lengths, not ascending, not up to the lengths that are given") {
  const Place place;
  struct Row {
    std::vector<base::Tree> buckets;
    std::string says;
  };
  for (const Row& row :
       {Row{{}, "wanted a list of [source, target] lengths, as in [[12, 12], [13, 13]]"}, Row{{word("12")}, "buckets"},
        Row{{list({0, 4}), list({12, 12})}, "buckets"},
        Row{{list({4}), list({12, 12})}, "wanted a source and a target length, as in [12, 12], found 1 numbers"},
        Row{{list({6, 6}), list({8, 5}), list({12, 12})}, "[8, 5] comes after [6, 6]: list the buckets from the"},
        Row{{list({12, 12}), list({12, 12})}, "[12, 12] comes after [12, 12]"},
        Row{{list({6, 6}), list({12, 11})}, "the last bucket is [12, 11], but source_length and target_length say [12, 12]"}}) {
    base::Tree arguments = place.parallel();
    arguments.set("buckets", base::Tree::list(row.buckets));
    check_contains(bad_setting("parallel", arguments), row.says);
  }
  base::Tree arguments = place.parallel();
  arguments.set("buckets", base::Tree::list({list({6, 6}), list({6, 9}), list({12, 12})}));
  CHECK(test::open("parallel", arguments)->spec().buckets() == 3);
}

TEST_CASE("training a model on bad text or with impossible settings") {
  const Place place;
  test::put(place.folder / "empty", "\n\n");
  CHECK_THROWS_AS(data::train_sentencepiece({{place.path("empty")}, true, 100, 1, {}}), base::DataError);
  CHECK_THROWS_AS(data::train_sentencepiece({{place.path("gone")}, true, 100, 1, {}}), base::DataError);
  CHECK_THROWS_AS(data::train_sentencepiece({{test::rhyme_path()}, false, 100000, 1, {}}), base::ConfigError);
  CHECK_THROWS_AS(data::train_sentencepiece({{test::rhyme_path()}, true, 20, 1, {}}), base::ConfigError);
  test::put(place.folder / "a", "the mill\n\xC3\n");
  try {
    data::train_sentencepiece({{test::rhyme_path(), place.path("a")}, true, 100, 1, {}});
    FAIL("bad UTF-8 was taken");
  } catch (const base::DataError& error) { check_contains(error.what(), place.path("a") + ":2: byte 0"); }
}
