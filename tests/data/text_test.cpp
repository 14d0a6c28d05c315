// The data sets of text on good files: tokens, windows, ranges, pairs of languages; SentencePiece against its own programs.
#include "core/device/ops.h"
#include "core/train/data.h"
#include "tests/data/text_support.h"

#include <nlohmann/json.hpp>

#include <map>
#include <set>

using namespace gpipe;
using test::list;
using test::tokens;
using test::tree;
using test::word;
using test::words;

namespace {

using Ids = std::vector<int32_t>;

std::string path_of(const test::TempFolder& folder, const std::string& name, const std::string& content) {
  test::put(folder / name, content);
  return (folder / name).string();
}

base::Tree text(const std::string& path, int64_t length) {
  return tree({{"path", word(path)}, {"length", word(std::to_string(length))}});
}

base::Tree pair(const std::string& source, const std::string& target, const std::string& tag = "") {
  base::Tree both = tree({{"source", word(source)}, {"target", word(target)}});
  if (!tag.empty()) both.set("tag", word(tag));
  return both;
}

base::Tree parallel(const std::string& model, std::vector<base::Tree> pairs, int64_t source_length, int64_t target_length) {
  return tree({{"model", word(model)},
               {"pairs", base::Tree::list(std::move(pairs))},
               {"source_length", word(std::to_string(source_length))},
               {"target_length", word(std::to_string(target_length))}});
}

}  // namespace

TEST_CASE("characters are the code points of the file in ascending order, and a target is the next one") {
  const test::TempFolder folder;
  const auto set = test::open("text", text(path_of(folder, "a.txt",
                                                   "\xEF\xBB\xBF"
                                                   "baé\n𝄞ab"),
                                           3));
  CHECK(set->spec().classes == 5);  // \n a b é 𝄞
  CHECK(set->spec().input == tensor::Shape{3});
  CHECK(set->spec().target == tensor::Shape{3});
  CHECK(set->spec().input_type == tensor::DType::i32);
  CHECK(set->spec().predicts_tokens());
  REQUIRE(set->size() == 2);
  CHECK(tokens(*set, 0).input == Ids{2, 1, 3});
  CHECK(tokens(*set, 0).target == Ids{1, 3, 0});
  CHECK(tokens(*set, 1).input == Ids{0, 4, 1});
  CHECK(tokens(*set, 1).target == Ids{4, 1, 2});
  REQUIRE(set->tokenizer() != nullptr);
  CHECK(set->tokenizer()->decode(tokens(*set, 1).input) == "\n𝄞a");
  CHECK(set->tokenizer()->id_of("é") == 3);
  CHECK(set->tokenizer()->id_of("x") == -1);
  test::check_contains(set->describe(), "2 samples of 3 tokens, 3 apart (7 tokens, 5 characters)");
}

TEST_CASE("bytes are 256 tokens, whatever the file holds; gzip is unpacked") {
  const test::TempFolder folder;
  base::Tree arguments = text(path_of(folder, "a",
                                      test::gzip("A\xFF"
                                                 "CDE")),
                              2);
  arguments.set("tokens", word("bytes"));
  const auto set = test::open("text", arguments);
  CHECK(set->spec().classes == 256);
  REQUIRE(set->size() == 2);
  CHECK(tokens(*set, 0).input == Ids{65, 255});
  CHECK(tokens(*set, 1).target == Ids{68, 69});
}

TEST_CASE("windows lie stride apart, and the last one has a target inside the range") {
  const test::TempFolder folder;
  const std::string path = path_of(folder, "a.txt", "0123456789");
  struct Row {
    int64_t length, stride;
    std::vector<int64_t> range;
    std::vector<int32_t> firsts;
  };
  for (const Row& row : {Row{4, 0, {}, {0, 4}}, Row{4, 2, {}, {0, 2, 4}}, Row{4, 5, {}, {0, 5}}, Row{9, 0, {}, {0}},
                         Row{3, 1, {2, 7}, {2, 3}}, Row{3, 0, {2, 9}, {2, 5}}, Row{2, 3, {0, 10}, {0, 3, 6}}}) {
    CAPTURE(row.length);
    CAPTURE(row.stride);
    base::Tree arguments = text(path, row.length);
    arguments.set("stride", word(std::to_string(row.stride)));
    if (!row.range.empty()) arguments.set("range", list(row.range));
    const auto set = test::open("text", arguments);
    REQUIRE(set->size() == static_cast<int64_t>(row.firsts.size()));
    for (int64_t i = 0; i < set->size(); ++i) {
      const auto sample = tokens(*set, i);
      for (int32_t t = 0; t < static_cast<int32_t>(row.length); ++t) {
        CHECK(sample.input[static_cast<size_t>(t)] == row.firsts[static_cast<size_t>(i)] + t);
        CHECK(sample.target[static_cast<size_t>(t)] == row.firsts[static_cast<size_t>(i)] + t + 1);
      }
    }
  }
}

TEST_CASE("a range in shares cuts the file where int(share * tokens) does, and keeps the whole file's vocabulary") {
  const test::TempFolder folder;
  const std::string path = path_of(folder, "a.txt", "aaaaaaaaab?");  // 11: nine tenths are 9
  base::Tree arguments = text(path, 1);
  arguments.set("range", words({"0", "0.9"}));
  const auto train = test::open("text", arguments);
  CHECK(train->size() == 8);
  CHECK(train->spec().classes == 3);
  arguments.set("range", words({"0.9", "1"}));
  const auto held_out = test::open("text", arguments);
  REQUIRE(held_out->size() == 1);
  CHECK(tokens(*held_out, 0).input == Ids{2});
  CHECK(tokens(*held_out, 0).target == Ids{0});
  CHECK(held_out->tokenizer()->identity() == train->tokenizer()->identity());
}

TEST_CASE("a vocabulary from another file") {
  const test::TempFolder folder;
  base::Tree arguments = text(path_of(folder, "a.txt", "cab"), 2);
  arguments.set("vocabulary", word(path_of(folder, "v.txt", "zabcab")));
  const auto set = test::open("text", arguments);
  CHECK(set->spec().classes == 4);
  CHECK(tokens(*set, 0).input == Ids{2, 0});
  test::put(folder / "v.txt", "zabcabz");
  CHECK_THROWS_AS(set->recheck(), base::DataError);
}

TEST_CASE("tokens: nanoGPT's and llm.c's files give what was written, also across files") {
  const test::TempFolder folder;
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 3;
  const std::string raw = path_of(folder, "a.bin", test::little_endian<uint16_t>({1, 2, 50256, 4}));
  const std::string llm = path_of(folder, "b.bin", test::little_endian(header) + test::little_endian<uint16_t>({5, 6, 7}));
  header[0] = 20240801;
  header[1] = 7;
  const std::string llama = path_of(folder, "c.bin", test::little_endian(header) + test::little_endian<uint32_t>({8, 128000, 9}));
  const std::string wide = path_of(folder, "d.bin", test::little_endian<uint32_t>({3, 70000, 1}));
  const auto all = test::open("tokens", tree({{"files", words({raw, llm, llama})}, {"length", word("9")}}));
  CHECK(all->spec().classes == 128001);
  REQUIRE(all->size() == 1);
  CHECK(tokens(*all, 0).input == Ids{1, 2, 50256, 4, 5, 6, 7, 8, 128000});
  CHECK(tokens(*all, 0).target == Ids{2, 50256, 4, 5, 6, 7, 8, 128000, 9});
  const auto four = test::open("tokens", tree({{"files", words({wide})}, {"length", word("2")}, {"type", word("uint32")}}));
  CHECK(tokens(*four, 0).target == Ids{70000, 1});
  const auto some = test::open(
      "tokens", tree({{"files", words({raw})}, {"length", word("1")}, {"range", list({1, 3})}, {"classes", word("50257")}}));
  CHECK(some->spec().classes == 50257);
  CHECK(tokens(*some, 0).input == Ids{2});
  CHECK(tokens(*some, 0).target == Ids{50256});
  test::put(folder / "a.bin", test::little_endian<uint16_t>({1, 2, 3}));
  CHECK_THROWS_AS(some->recheck(), base::DataError);
}

TEST_CASE("SentencePiece: trained here and by spm_train, the ids and texts are the same") {
  std::ifstream file(test::source_dir() / "tests/reference/sentencepiece.json");
  const auto cases = nlohmann::json::parse(file);
  const test::TempFolder folder;
  for (const auto& one : cases) {
    const std::string kind = one["kind"];
    CAPTURE(kind);
    const std::string model = test::rhyme_model(kind == "bpe", one["vocabulary"]);
    CHECK((test::rhyme_model(kind == "bpe", one["vocabulary"]) == model));  // again: the same bytes
    const auto tokenizer = data::sentencepiece_tokenizer(path_of(folder, kind, model));
    CHECK(tokenizer->size() == one["vocabulary"]);
    const auto special = tokenizer->special();
    CHECK(Ids{special.padding, special.unknown, special.begin, special.end} == Ids{0, 1, 2, 3});
    CHECK(tokenizer->id_of("<de>") == 4);
    CHECK(tokenizer->id_of("<fr>") == 5);
    CHECK(tokenizer->id_of("<cs>") == -1);
    for (const auto& line : one["lines"]) {
      CAPTURE(line["text"].get<std::string>());
      Ids ids;
      tokenizer->encode(line["text"].get<std::string>(), ids);
      CHECK(ids == line["ids"].get<Ids>());
      CHECK(tokenizer->decode(ids) == line["decoded"].get<std::string>());
    }
  }
}

TEST_CASE("text through a model: each line on its own, its end token after it") {
  const test::TempFolder folder;
  const std::string model = path_of(folder, "m.model", test::rhyme_model(false, 200));
  const auto tokenizer = data::sentencepiece_tokenizer(model);
  Ids expected;
  for (const char* line : {"the mill", "", "the river"}) {
    tokenizer->encode(line, expected);
    expected.push_back(3);
  }
  base::Tree arguments = text(path_of(folder, "a.txt", "the mill\r\n\nthe river"), static_cast<int64_t>(expected.size()) - 1);
  arguments.set("model", word(model));
  const auto set = test::open("text", arguments);
  REQUIRE(set->size() == 1);
  Ids all = tokens(*set, 0).input;
  all.push_back(tokens(*set, 0).target.back());
  CHECK(all == expected);
  CHECK(set->spec().classes == 200);
}

TEST_CASE("parallel: tag, tokens, end and padding; targets end with -100; long lines are cut or left out") {
  const test::TempFolder folder;
  const std::string model = path_of(folder, "m.model", test::rhyme_model(true, 250));
  const auto tokenizer = data::sentencepiece_tokenizer(model);
  const std::string source = path_of(folder, "a.en", "the river\nthe miller rose before the sun and set the stones\n\n");
  const std::string target = path_of(folder, "a.de.gz", test::gzip("a loaf\nno one\n\n"));
  Ids river, loaf, stones;
  tokenizer->encode("the river", river);
  tokenizer->encode("a loaf", loaf);
  tokenizer->encode("the miller rose before the sun and set the stones", stones);
  REQUIRE(stones.size() > 10);
  REQUIRE(river.size() < 6);
  base::Tree arguments = parallel(model, {pair(source, target, "<de>")}, 8, 7);
  const auto set = test::open("parallel", arguments);
  REQUIRE(set->size() == 3);
  CHECK(set->spec().input == tensor::Shape{8});
  CHECK(set->spec().target == tensor::Shape{7});
  CHECK(set->spec().classes == 250);
  Ids wanted = river;
  wanted.insert(wanted.begin(), 4);
  wanted.push_back(3);
  wanted.resize(8, 0);
  CHECK(tokens(*set, 0).input == wanted);
  wanted = loaf;
  wanted.push_back(3);
  wanted.resize(7, device::k_ignored_target);
  CHECK(tokens(*set, 0).target == wanted);
  wanted = stones;
  wanted.insert(wanted.begin(), 4);
  wanted.resize(8);
  wanted.back() = 3;
  CHECK(tokens(*set, 1).input == wanted);
  CHECK(tokens(*set, 2).input == Ids{4, 3, 0, 0, 0, 0, 0, 0});
  CHECK(tokens(*set, 2).target[0] == 3);
  arguments.set("too_long", word("leave_out"));
  CHECK(test::open("parallel", arguments)->size() == 2);
  arguments.set("range", list({1, 2}));
  test::check_contains(test::complaint<base::DataError>("parallel", arguments), "every line is longer than 8 tokens");
}

TEST_CASE("parallel: a line is of the shortest bucket that it and its translation fit into, and reads the same there") {
  const test::TempFolder folder;
  const std::string model = path_of(folder, "m.model", test::rhyme_model(true, 250));
  const auto tokenizer = data::sentencepiece_tokenizer(model);
  const std::vector<std::string> sources{"", "river", "the miller rose before the sun", "", "the river"};
  const std::vector<std::string> targets{"", "", "", "the stones turned", "the miller rose before the sun and set the stones"};
  std::string source, target;
  for (size_t i = 0; i < sources.size(); ++i) {
    source += sources[i] + "\n";
    target += targets[i] + "\n";
  }
  base::Tree arguments =
      parallel(model, {pair(path_of(folder, "a.en", source), path_of(folder, "a.de", target), "<de>")}, 16, 12);
  CHECK(test::open("parallel", arguments)->spec().narrower.empty());
  arguments.set("buckets", base::Tree::list({list({2, 4}), list({8, 4}), list({9, 9}), list({16, 12})}));
  const auto set = test::open("parallel", arguments);
  REQUIRE(set->spec().buckets() == 4);
  CHECK(set->spec().bucket(0).input == tensor::Shape{16});
  CHECK(set->spec().bucket(1).target == tensor::Shape{9});
  CHECK(set->spec().bucket(3).input == tensor::Shape{2});
  const std::vector<std::pair<int64_t, int64_t>> lengths{{16, 12}, {9, 9}, {8, 4}, {2, 4}};
  std::set<int> seen;
  for (int64_t i = 0; i < set->size(); ++i) {
    Ids from, to;
    tokenizer->encode(sources[static_cast<size_t>(i)], from);
    tokenizer->encode(targets[static_cast<size_t>(i)], to);
    const int64_t source_tokens = static_cast<int64_t>(from.size()) + 2, target_tokens = static_cast<int64_t>(to.size()) + 1;
    const int bucket = set->bucket_of(i);
    CAPTURE(i);
    CHECK((bucket == 0 || (source_tokens <= lengths[static_cast<size_t>(bucket)].first &&
                           target_tokens <= lengths[static_cast<size_t>(bucket)].second)));
    if (bucket < 3) {
      const auto& [shorter_source, shorter_target] = lengths[static_cast<size_t>(bucket) + 1];
      CHECK((source_tokens > shorter_source || target_tokens > shorter_target));
    }
    seen.insert(bucket);
    test::Tokens wide = tokens(*set, i);
    for (int b = 1; b <= bucket; ++b) {
      wide.input.resize(static_cast<size_t>(lengths[static_cast<size_t>(b)].first));
      wide.target.resize(static_cast<size_t>(lengths[static_cast<size_t>(b)].second));
      CHECK(tokens(*set, i, b).input == wide.input);
      CHECK(tokens(*set, i, b).target == wide.target);
    }
  }
  CHECK(seen == std::set<int>{0, 1, 2, 3});
}

TEST_CASE("parallel: a long line is told of in a warning") {
  const test::TempFolder folder;
  const std::string model = path_of(folder, "m.model", test::rhyme_model(true, 250));
  const std::string source = path_of(folder, "a.en", "the river runs\nred\n"), target = path_of(folder, "a.de", "no\nyes\n");
  for (const train::DatasetType* type : data::dataset_types()) {
    if (type->name != "parallel") continue;
    base::Problems problems;
    REQUIRE(type->open(parallel(model, {pair(source, target)}, 4, 6), "data.train.parallel", problems) != nullptr);
    REQUIRE(problems.warnings().size() == 1);
    test::check_contains(problems.warnings()[0], "1 of 2 lines are longer than 4 tokens");
    test::check_contains(problems.warnings()[0], "were cut");
  }
}

TEST_CASE("parallel: the temperature repeats smaller pairs in proportion, leaves nothing out, and goes by the seed") {
  const test::TempFolder folder;
  const std::string model = path_of(folder, "m.model", test::rhyme_model(true, 250));
  const auto lines = [](int count, const std::string& what) {
    std::string all;
    for (int i = 0; i < count; ++i) all += what + std::string(static_cast<size_t>(i), 'e') + "\n";
    return all;
  };
  const std::string many = path_of(folder, "m", lines(16, "m")), few = path_of(folder, "f", lines(4, "f"));
  const std::string other = path_of(folder, "o", lines(4, "o"));
  const std::string targets = path_of(folder, "t16", lines(16, "t")), four = path_of(folder, "t4", lines(4, "t"));
  base::Tree arguments = parallel(model, {pair(many, targets, "<de>"), pair(few, four, "<fr>"), pair(other, four)}, 20, 20);
  const auto count = [&](const train::Dataset& set) {
    std::map<Ids, int> of_many, of_few, of_other;
    for (int64_t i = 0; i < set.size(); ++i) {
      const Ids input = tokens(set, i).input;
      ++(input[0] == 4 ? of_many : input[0] == 5 ? of_few : of_other)[input];
    }
    return std::vector{of_many, of_few, of_other};
  };
  const auto plain = count(*test::open("parallel", arguments));
  for (const auto& one : plain)
    for (const auto& [ids, times] : one) CHECK(times == 1);
  CHECK(plain[0].size() == 16);
  CHECK(plain[1].size() == 4);
  arguments.set("temperature", word("2"));  // 16 : 8 : 8
  const auto set = test::open("parallel", arguments);
  CHECK(set->size() == 32);
  const auto warm = count(*set);
  for (const size_t p : {size_t{1}, size_t{2}})
    for (const auto& [ids, times] : warm[p]) CHECK(times == 2);
  arguments.set("temperature", word("1.25"));  // 4 lines: 16 * 0.25^0.8 = 5.28
  const auto odd = test::open("parallel", arguments);
  CHECK(odd->size() == 26);
  CHECK(count(*odd)[1].size() == 4);
  std::set<Ids> orders;
  for (int64_t seed = 1; seed <= 20; ++seed) {
    arguments.set("seed", word(std::to_string(seed)));
    const auto one = test::open("parallel", arguments), same = test::open("parallel", arguments);
    CHECK(tokens(*one, 20).input == tokens(*same, 20).input);
    orders.insert(tokens(*one, 20).input);
  }
  CHECK(orders.size() > 1);
}

TEST_CASE("training and validation: one vocabulary, and a warning where they share tokens") {
  const test::TempFolder folder;
  const std::string ab = path_of(folder, "ab", "abababab"), ac = path_of(folder, "ac", "acacacac");
  const auto open = [&](const std::string& train_path, const std::string& validation_path, const base::Tree& first,
                        const base::Tree& last) {
    train::DataOptions options;
    base::Tree train = text(train_path, 2), validation = text(validation_path, 2);
    train.set("range", first);
    validation.set("range", last);
    options.train = test::choice("text", train);
    options.validation = test::choice("text", validation);
    base::Problems problems;
    auto sets = train::open_data(options, data::dataset_types(), 1, problems);
    problems.throw_if_any();
    return sets;
  };
  const base::Tree first = words({"0", "0.5"}), last = words({"0.5", "1"}), most = words({"0", "0.6"});
  CHECK(open(ab, ab, first, last).warnings.empty());
  CHECK(open(ab, ab, most, last).warnings.size() == 1);
  try {
    open(ab, ac, first, last);
    FAIL("another vocabulary was taken");
  } catch (const base::DataError& error) { test::check_contains(error.what(), "has other tokens"); }
}

TEST_CASE("tinyshakespeare: nanoGPT's characters and its split") {
  const auto path = test::shared("datasets/text/tinyshakespeare.txt");
  if (!path) return;
  base::Tree arguments = text(path->string(), 14);
  arguments.set("range", words({"0", "0.9"}));
  const auto train = test::open("text", arguments);
  CHECK(train->spec().classes == 65);
  test::check_contains(train->describe(), "1,003,854 tokens");
  CHECK(tokens(*train, 0).input == Ids{18, 47, 56, 57, 58, 1, 15, 47, 58, 47, 64, 43, 52, 10});  // First Citizen:
  arguments.set("range", words({"0.9", "1"}));
  test::check_contains(test::open("text", arguments)->describe(), "111,540 tokens");
}

TEST_CASE("multi30k: one sample a line, gzip, three languages by one model") {
  const auto folder = test::shared("datasets/multi30k");
  if (!folder) return;
  const auto file = [&](const char* name) { return (*folder / name).string(); };
  const test::TempFolder made;
  const std::string model = path_of(
      made, "m.model",
      data::train_sentencepiece({{file("val.en.gz"), file("val.de.gz"), file("val.fr.gz")}, true, 600, 1, {"<de>", "<fr>"}}));
  const auto set = test::open(
      "parallel",
      parallel(model, {pair(file("val.en.gz"), file("val.de.gz"), "<de>"), pair(file("val.en.gz"), file("val.fr.gz"), "<fr>")},
               120, 120));
  REQUIRE(set->size() == 2 * 1014);
  const auto first = tokens(*set, 0), again = tokens(*set, 1014);
  CHECK(first.input[0] == 4);
  CHECK(again.input[0] == 5);
  CHECK(std::equal(first.input.begin() + 1, first.input.end(), again.input.begin() + 1));
  const auto end = std::find(first.target.begin(), first.target.end(), 3);
  CHECK(set->tokenizer()->decode(std::span(first.target).first(static_cast<size_t>(end - first.target.begin()))) ==
        "Eine Gruppe von Männern lädt Baumwolle auf einen Lastwagen");
}
