// tokenize: trains a SentencePiece model, and turns text into its tokens and back.
#include "app/commands.h"
#include "core/base/files.h"
#include "core/base/text.h"
#include "data/lines.h"
#include "data/sentencepiece.h"
#include "data/text_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace gpipe::app {

base::FieldSet<TokenizeOptions> tokenize_fields() {
  using Options = TokenizeOptions;
  base::FieldSet<Options> f{"tokenize"};
  f.add("--input", &Options::input).unit("FILE").help("text to train on, or for --bin, plain or gzip; several are one text");
  f.add("--output", &Options::output).unit("PREFIX").help("train a model: PREFIX.model, and PREFIX.vocab to look at");
  f.add("--type", &Options::kind, {"unigram", "bpe"}).help("of the model");
  f.add("--vocabulary", &Options::vocabulary).range(8, 1 << 20).help("tokens of the model, special ones included");
  f.add("--character-coverage", &Options::character_coverage)
      .at_least(0.9)
      .at_most(1)
      .help("share of the text's characters that the model knows");
  f.add("--symbols", &Options::symbols).help("tokens that are never split, with commas, as in '<de>,<fr>'");
  f.add("--model", &Options::model).unit("FILE").help("a trained model, for --encode, --decode and --bin");
  f.add("--encode", &Options::encode).unit("FILE").help("print the ids of each line of FILE");
  f.add("--decode", &Options::decode).unit("FILE").help("print the text of each line of ids in FILE");
  f.add("--bin", &Options::bin)
      .unit("FILE")
      .help("write the ids of the input as the data set `tokens` reads them (nanoGPT's form)");
  return f;
}

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t stop = std::min(text.find(',', at), text.size());
    if (stop == at) throw base::ConfigError("--symbols {}: an empty symbol", data::shown(text));
    parts.push_back(text.substr(at, stop - at));
    at = stop + 1;
  }
  return parts;
}

void refuse_existing(const std::string& path) {
  if (base::kind_of(path)) throw base::FileError("{}: the name is taken: remove it or choose another", path);
}

void train_model(const TokenizeOptions& options) {
  const std::string model_file = options.output + ".model", vocabulary_file = options.output + ".vocab";
  refuse_existing(model_file);
  refuse_existing(vocabulary_file);
  data::SentencePieceTraining training{options.input, options.kind == TokenizeOptions::Kind::bpe, options.vocabulary,
                                       options.character_coverage, split(options.symbols)};
  const std::string model = data::train_sentencepiece(training);
  base::replace_file(base::real_files(), model_file, model);
  base::replace_file(base::real_files(), vocabulary_file, data::sentencepiece_vocabulary(model));
  const auto tokenizer = data::sentencepiece_tokenizer(model_file);
  const train::SpecialTokens special = tokenizer->special();
  fmt::print("{} and {}: {} tokens; padding {}, unknown {}, begin {}, end {}", model_file, vocabulary_file,
             base::format_count(tokenizer->size()), special.padding, special.unknown, special.begin, special.end);
  for (const std::string& symbol : training.symbols) fmt::print(", {} {}", symbol, tokenizer->id_of(symbol));
  fmt::print("\n");
}

void print_ids(const TokenizeOptions& options, const train::Tokenizer& tokenizer) {
  data::LineReader lines(options.encode);
  std::string_view line;
  std::vector<int32_t> ids;
  while (lines.next(line)) {
    ids.clear();
    try {
      tokenizer.encode(line, ids);
    } catch (const base::DataError& error) { throw base::DataError("{}:{}: {}", options.encode, lines.number(), error.what()); }
    fmt::print("{}\n", fmt::join(ids, " "));
  }
}

std::vector<int32_t> read_ids(std::string_view line) {
  std::vector<int32_t> ids;
  for (size_t at = 0; (at = line.find_first_not_of(" \t", at)) != std::string_view::npos;) {
    const size_t stop = std::min(line.find_first_of(" \t", at), line.size());
    const auto [end, error] = std::from_chars(line.data() + at, line.data() + stop, ids.emplace_back());
    if (error != std::errc{} || end != line.data() + stop)
      throw base::DataError("\"{}\" is no token id", data::shown(line.substr(at, stop - at)));
    at = stop;
  }
  return ids;
}

void print_text(const TokenizeOptions& options, const train::Tokenizer& tokenizer) {
  data::LineReader lines(options.decode);
  std::string_view line;
  while (lines.next(line)) {
    try {
      fmt::print("{}\n", tokenizer.decode(read_ids(line)));
    } catch (const base::DataError& error) { throw base::DataError("{}:{}: {}", options.decode, lines.number(), error.what()); }
  }
}

/// uint16, or uint32 where the vocabulary needs it; little-endian, nothing else.
void write_bin(const TokenizeOptions& options, const train::Tokenizer& tokenizer) {
  refuse_existing(options.bin);
  const size_t width = tokenizer.size() <= 1 << 16 ? 2 : 4;
  std::string bytes;
  for (const std::string& path : options.input) {
    data::encode_text(tokenizer, data::read_text(path), path, [&](std::span<const int32_t> ids) {
      for (const int32_t id : ids)
        for (size_t b = 0; b < width; ++b) bytes.push_back(static_cast<char>(static_cast<uint32_t>(id) >> (8 * b)));
    });
  }
  base::replace_file(base::real_files(), options.bin, bytes);
  fmt::print("{}: {} tokens as uint{}, of a vocabulary of {}\n", options.bin,
             base::format_count(static_cast<int64_t>(bytes.size() / width)), 8 * width, base::format_count(tokenizer.size()));
}

void check(const TokenizeOptions& o) {
  const auto given = [](const std::string& text) { return text.empty() ? 0 : 1; };
  if (given(o.output) + given(o.encode) + given(o.decode) + given(o.bin) != 1)
    throw base::ConfigError("tokenize: wanted one of --output (train a model), --encode, --decode and --bin");
  if (o.output.empty() && o.model.empty()) throw base::ConfigError("tokenize: --model is missing: whose tokens?");
  if (!o.output.empty() && !o.model.empty())
    throw base::ConfigError("tokenize: --output trains a model, --model takes a trained one; give one of them");
  const bool reads_input = !o.output.empty() || !o.bin.empty();
  if (reads_input && o.input.empty()) throw base::ConfigError("tokenize: --input is missing: a text file");
  if (!reads_input && !o.input.empty())
    throw base::ConfigError("tokenize: --input goes with --output and --bin; {} names its own file",
                            o.encode.empty() ? "--decode" : "--encode");
}

}  // namespace

int run_tokenize(const Command& command, const Catalog&) {
  const TokenizeOptions& options = command.tokenize;
  check(options);
  if (!options.output.empty()) {
    train_model(options);
    return 0;
  }
  const auto tokenizer = data::sentencepiece_tokenizer(options.model);
  if (!options.encode.empty()) print_ids(options, *tokenizer);
  if (!options.decode.empty()) print_text(options, *tokenizer);
  if (!options.bin.empty()) write_bin(options, *tokenizer);
  return 0;
}

}  // namespace gpipe::app
