#include "data/sentencepiece.h"

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/lines.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <unordered_map>
#include <utility>

namespace gpipe::data {

namespace {

using sentencepiece::SentencePieceProcessor;

constexpr uint64_t most_model_bytes = uint64_t{1} << 30;

class SentencePieceTokenizer final : public train::Tokenizer {
 public:
  SentencePieceTokenizer(std::string model, std::string name) : model_(std::move(model)), name_(std::move(name)) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok() || processor_.GetPieceSize() <= 0) {
      throw base::DataError("{}: this is no SentencePiece model{}{}; gpipe-train tokenize makes one", name_,
                            status.ok() ? "" : ": ", status.ok() ? "" : status.error_message());
    }
  }

  int64_t size() const override { return processor_.GetPieceSize(); }
  train::SpecialTokens special() const override {
    return {processor_.pad_id(), processor_.unk_id(), processor_.bos_id(), processor_.eos_id()};
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    const size_t valid = base::valid_utf8(text);  // the library would put U+FFFD in its place
    if (valid < text.size()) throw base::DataError("byte {} begins no UTF-8 character; wanted UTF-8", valid);
    std::vector<int> found;
    check(processor_.Encode({text.data(), text.size()}, &found));
    ids.insert(ids.end(), found.begin(), found.end());
  }
  std::string decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids) {
      if (id < 0 || id >= size()) throw base::DataError("token {} is not in [0, {})", id, size());
    }
    std::string text;
    check(processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text));
    return text;
  }
  int32_t id_of(std::string_view token) const override {
    const int id = processor_.PieceToId({token.data(), token.size()});
    return processor_.IdToPiece(id) == token ? id : -1;  // what is not there comes out as the unknown token
  }
  std::string identity() const override { return "sentencepiece " + model_; }
  std::string describe() const override { return fmt::format("{} tokens of {}", size(), short_name(name_)); }

 private:
  void check(const sentencepiece::util::Status& status) const {
    if (!status.ok()) throw base::DataError("{}: SentencePiece: {}", name_, status.error_message());
  }

  std::string model_, name_;
  SentencePieceProcessor processor_;
};

/// The lines of several files, one after the other. An error ends the iteration and is kept for whoever began it: the library
/// must not see exceptions.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::span<const std::string> files) : files_(files) { Next(); }

  bool done() const override { return done_; }
  void Next() override {
    try {
      next();
    } catch (...) {
      error = std::current_exception();
      done_ = true;
    }
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override {
    return error ? sentencepiece::util::Status(sentencepiece::util::StatusCode::kDataLoss, "bad input")
                 : sentencepiece::util::Status();
  }

  std::exception_ptr error;
  int64_t lines = 0;  // that were not empty

 private:
  void next() {
    while (true) {
      if (!reader_) {
        if (at_ == files_.size()) {
          done_ = true;
          return;
        }
        reader_ = std::make_unique<LineReader>(files_[at_++]);
      }
      std::string_view line;
      if (!reader_->next(line)) {
        reader_.reset();
        continue;
      }
      const size_t valid = base::valid_utf8(line);
      if (valid < line.size()) {
        throw base::DataError("{}:{}: byte {} of the line begins no UTF-8 character; wanted UTF-8", files_[at_ - 1],
                              reader_->number(), valid);
      }
      if (line.empty()) continue;
      line_ = line;
      ++lines;
      return;
    }
  }

  std::span<const std::string> files_;
  size_t at_ = 0;
  std::unique_ptr<LineReader> reader_;
  std::string line_;
  bool done_ = false;
};

/// "Vocabulary size too high (9000). Please set it to a value <= 71." without the place in the library's source.
std::string reason_of(const sentencepiece::util::Status& status) {
  std::string text = status.error_message();
  const size_t place = text.rfind("] ");
  if (place != std::string::npos && place + 2 < text.size()) text = text.substr(place + 2);
  return text;
}

}  // namespace

std::unique_ptr<train::Tokenizer> sentencepiece_tokenizer(const std::string& path, Stamped* stamp) {
  std::string reason;
  const auto file = base::InputFile::open(path, reason);
  if (!file) throw base::DataError("{}: {}", path, reason);
  if (file->size() == 0 || file->size() > most_model_bytes) {
    throw base::DataError("{}: this is no SentencePiece model: it has {} bytes", path, file->size());
  }
  std::string model(file->size(), '\0');
  model.resize(file->read_at(0, std::as_writable_bytes(std::span(model))));
  if (stamp != nullptr) *stamp = {path, file->stamp()};
  return std::make_unique<SentencePieceTokenizer>(std::move(model), path);
}

std::string train_sentencepiece(const SentencePieceTraining& options) {
  Lines lines(options.files);
  std::unordered_map<std::string, std::string> settings{
      {"model_type", options.bpe ? "bpe" : "unigram"},
      {"vocab_size", std::to_string(options.vocabulary)},
      {"character_coverage", fmt::format("{}", options.character_coverage)},
      {"num_threads", "1"},
      {"pad_id", "0"},
      {"unk_id", "1"},
      {"bos_id", "2"},
      {"eos_id", "3"},
      {"minloglevel", "2"},
  };
  if (!options.symbols.empty()) settings["user_defined_symbols"] = fmt::format("{}", fmt::join(options.symbols, ","));
  sentencepiece::SetRandomGeneratorSeed(1);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  if (lines.error) std::rethrow_exception(lines.error);
  if (lines.lines == 0) throw base::DataError("{}: there is no text in it", fmt::join(options.files, ", "));
  if (!status.ok()) throw base::ConfigError("SentencePiece cannot train on this text: {}", reason_of(status));
  return model;
}

std::string sentencepiece_vocabulary(const std::string& model) {
  SentencePieceProcessor processor;
  const auto status = processor.LoadFromSerializedProto(model);
  if (!status.ok()) throw base::BugError("the trained model cannot be read: {}", status.error_message());
  std::string text;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    text += fmt::format("{}\t{:g}\n", processor.IdToPiece(id), processor.GetScore(id));
  }
  return text;
}

}  // namespace gpipe::data
