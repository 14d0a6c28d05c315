// text: running text from one file, plain or gzip, as bytes, characters or the tokens of a SentencePiece model, in windows.
#include "data/dataset_types.h"
#include "data/memory.h"
#include "data/sentencepiece.h"
#include "data/text_file.h"
#include "data/token_windows.h"
#include "data/tokenizers.h"

namespace gpipe::data {

namespace {

enum class Tokens { characters, bytes };

struct TextOptions : WindowOptions {
  std::string path;
  Tokens tokens = Tokens::characters;
  std::string vocabulary;
  std::string model;
};

const base::FieldSet<TextOptions>& text_fields() {
  static const auto fields = [] {
    base::FieldSet<TextOptions> f{"text"};
    f.add("path", &TextOptions::path).required().help("text file, plain or gzip");
    f.add("tokens", &TextOptions::tokens, {"characters", "bytes"})
        .help("what a token is: a Unicode character that occurs in the file, in ascending order, or one of 256 bytes");
    f.add("vocabulary", &TextOptions::vocabulary)
        .help("text file with the characters that there are, each at least once; without: the characters of path");
    f.add("model", &TextOptions::model)
        .help("instead of tokens, a SentencePiece model; each line is encoded on its own and followed by the model's end");
    add_window_fields(f);
    return f;
  }();
  return fields;
}

std::shared_ptr<const train::Tokenizer> make_tokenizer(const TextOptions& options, const std::string& text,
                                                       std::vector<Stamped>& files) {
  if (!options.model.empty()) return sentencepiece_tokenizer(options.model, &files.emplace_back());
  if (options.tokens == Tokens::bytes) return byte_tokenizer();
  if (options.vocabulary.empty()) return character_tokenizer(text, options.path);
  return character_tokenizer(read_text(options.vocabulary, &files.emplace_back()), options.vocabulary);
}

void check_options(const TextOptions& options, const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  check_windows(options, arguments, path, problems);
  if (!options.model.empty() && arguments.find("tokens") != nullptr)
    complain(arguments, path, "tokens", "a model says itself what a token is; keep one of model and tokens", problems);
  if (!options.vocabulary.empty() && (!options.model.empty() || options.tokens == Tokens::bytes))
    complain(arguments, path, "vocabulary", "is for tokens: characters", problems);
}

std::unique_ptr<train::Dataset> open_text(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  TextOptions options;
  const size_t before = problems.errors().size();
  text_fields().read(arguments, path, options, problems);
  check_options(options, arguments, path, problems);
  if (problems.errors().size() != before) return nullptr;
  Windows windows;
  windows.name = "text " + short_name(options.path);
  const std::string text = read_text(options.path, &windows.files.emplace_back());
  windows.tokenizer = make_tokenizer(options, text, windows.files);
  windows.vocabulary = windows.tokenizer->size();
  auto row = std::make_unique<PackedTokens>(windows.vocabulary);
  encode_text(*windows.tokenizer, text, options.path, [&](std::span<const int32_t> ids) { row->append(ids); });
  windows.row = std::move(row);
  return token_windows(std::move(windows), options);
}

}  // namespace

const train::DatasetType& text_dataset() {
  static const train::DatasetType type{"text", "running text, predicted token by token", open_text,
                                       [] { return text_fields().table(); }};
  return type;
}

}  // namespace gpipe::data
