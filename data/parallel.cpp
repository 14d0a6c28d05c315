// parallel: text in two languages, line by line: line i of `target` is the translation of line i of `source`. One pair of
// languages or several, all by one SentencePiece model.
//
//   input  [source_length]  tag, tokens, end, padding...
//   target [target_length]  tokens, end, then -100 (device::k_ignored_target): no target. A decoder's own input is made from it
//                           by shift_tokens.
//
// With `buckets` both are as long as the narrowest bucket that the line fits into, and the widest is [source_length],
// [target_length].
//
// An epoch is made of n_i^(1/temperature) lines of each pair i, in proportion (Arivazhagan et al. 2019, arXiv 1907.05019), the
// largest pair giving each of its lines once: smaller ones are repeated, nothing is left out.
#include "core/base/rng.h"
#include "data/dataset_types.h"
#include "data/lines.h"
#include "data/memory.h"
#include "data/sentencepiece.h"
#include "data/token_windows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpipe::data {

namespace {

constexpr int32_t ignored_target = -100;  // device::k_ignored_target, which this room may not include

struct PairOptions {
  std::string source, target, tag;
};

const base::FieldSet<PairOptions>& pair_fields() {
  static const auto fields = [] {
    base::FieldSet<PairOptions> f{"pair"};
    f.add("source", &PairOptions::source).required().help("text file, plain or gzip, a sentence a line");
    f.add("target", &PairOptions::target).required().help("its translation, line by line");
    f.add("tag", &PairOptions::tag).help("token before the source that names the target's language, as in <de>");
    return f;
  }();
  return fields;
}

enum class TooLong { cut, leave_out };

struct ParallelOptions {
  base::Tree pairs;
  std::vector<PairOptions> read_pairs;
  base::Tree buckets;
  std::vector<train::BucketShape> narrower;  // read from it, widest first
  std::string model;
  int64_t source_length = 0, target_length = 0;
  TooLong too_long = TooLong::cut;
  double temperature = 1;
  int64_t seed = 1;
  std::vector<int64_t> range;
};

const base::FieldSet<ParallelOptions>& parallel_fields() {
  static const auto fields = [] {
    base::FieldSet<ParallelOptions> f{"parallel"};
    f.add("pairs", &ParallelOptions::pairs)
        .required()
        .raw_schema(R"({"type": "array", "items": {"type": "object", "required": ["source", "target"], "properties": )"
                    R"({"source": {"type": "string"}, "target": {"type": "string"}, "tag": {"type": "string"}}}})")
        .help("pairs of files, each {source: FILE, target: FILE, tag: TOKEN}; the tag may be left out");
    f.add("model", &ParallelOptions::model).required().help("SentencePiece model of all languages (gpipe-train tokenize)");
    f.add("source_length", &ParallelOptions::source_length)
        .required()
        .range(2, 1 << 20)
        .unit("tokens")
        .help("of a source, tag and end included");
    f.add("target_length", &ParallelOptions::target_length)
        .required()
        .range(1, 1 << 20)
        .unit("tokens")
        .help("of a target, end included");
    f.add("buckets", &ParallelOptions::buckets)
        .raw_schema(R"({"type": ["array", "null"], "items": {"type": "array", "minItems": 2, "maxItems": 2, )"
                    R"("items": {"type": "integer", "minimum": 1}}})")
        .help(
            "[source, target] lengths, shortest first, the last [source_length, target_length]: a mini-batch has lines of one, "
            "the shortest they fit into; none: all as long as the longest");
    f.add("too_long", &ParallelOptions::too_long, {"cut", "leave_out"}).help("what happens to longer lines");
    f.add("temperature", &ParallelOptions::temperature)
        .range(1, 1000)
        .help("above 1: lines of smaller pairs are repeated, so that pair i has its share n_i^(1/temperature)");
    f.add("seed", &ParallelOptions::seed).at_least(0).help("of the lines that are repeated");
    f.add("range", &ParallelOptions::range).help("use only the lines [first, last) of each pair, counted from 0");
    return f;
  }();
  return fields;
}

/// Tokens of many lines, one after the other.
struct Lines {
  explicit Lines(int64_t vocabulary) : tokens(vocabulary) {}
  void add(std::span<const int32_t> line) {
    tokens.append(line);
    ends.push_back(tokens.size());
  }
  /// Writes line `index` to the front of `out`; how many tokens it has.
  size_t read(size_t index, std::span<int32_t> out) const {
    const int64_t first = index == 0 ? 0 : ends[index - 1];
    const auto count = static_cast<size_t>(ends[index] - first);
    tokens.read(first, out.first(count));
    return count;
  }
  int64_t length(size_t index) const { return ends[index] - (index == 0 ? 0 : ends[index - 1]); }
  PackedTokens tokens;
  std::vector<int64_t> ends;
};

/// The lines of all pairs that are used, pair after pair.
struct Corpus {
  explicit Corpus(int64_t vocabulary) : sources(vocabulary), targets(vocabulary) {}
  int64_t size() const { return static_cast<int64_t>(sources.ends.size()); }
  Lines sources, targets;
  int64_t long_lines = 0;  // cut, or left out
  std::vector<Stamped> files;
};

/// Reads one pair of files into a corpus.
class PairReader {
 public:
  PairReader(const ParallelOptions& options, const PairOptions& pair, const train::Tokenizer& tokenizer)
      : options_(options), pair_(pair), tokenizer_(tokenizer), source_(pair.source), target_(pair.target) {
    if (pair.tag.empty()) return;
    tag_ = tokenizer.id_of(pair.tag);
    if (tag_ < 0)
      throw base::DataError("{}: it has no token \"{}\" for the tag; train it with gpipe-train tokenize --symbols '{}'",
                            options.model, shown(pair.tag), shown(pair.tag));
  }

  /// How many lines came in.
  int64_t read_into(Corpus& corpus) {
    const int64_t before = corpus.size();
    corpus.files.push_back({pair_.source, source_.source().stamp()});
    corpus.files.push_back({pair_.target, target_.source().stamp()});
    std::string_view from, to;
    int64_t total = 0;
    while (true) {
      const bool more = source_.next(from);
      if (target_.next(to) != more) complain_of_counts();
      if (!more) break;
      if (options_.range.empty() || (total >= options_.range[0] && total < options_.range[1])) add(from, to, corpus);
      ++total;
    }
    clip_range(options_.range, total, pair_.source);
    if (corpus.size() == before)
      throw base::DataError(
          "{}: every line is longer than {} tokens, or its translation than {}; raise source_length and target_length, or set "
          "too_long: cut",
          pair_.source, options_.source_length, options_.target_length);
    return corpus.size() - before;
  }

 private:
  [[noreturn]] void complain_of_counts() {
    std::string_view line;
    for (LineReader* reader : {&source_, &target_}) {
      while (reader->next(line)) {}
    }
    throw base::DataError("{} has {} lines, {} has {}; line i of one must be the translation of line i of the other",
                          pair_.source, grouped(source_.number()), pair_.target, grouped(target_.number()));
  }

  void encode(std::string_view line, const LineReader& reader, std::vector<int32_t>& ids) const {
    try {
      tokenizer_.encode(line, ids);
    } catch (const base::DataError& error) {
      throw base::DataError("{}:{}: {}", reader.source().path(), reader.number(), error.what());
    }
    ids.push_back(tokenizer_.special().end);
  }

  void add(std::string_view from, std::string_view to, Corpus& corpus) {
    ids_.clear();
    if (tag_ >= 0) ids_.push_back(tag_);
    encode(from, source_, ids_);
    target_ids_.clear();
    encode(to, target_, target_ids_);
    const bool cut_source = cut(ids_, options_.source_length), cut_target = cut(target_ids_, options_.target_length);
    if (cut_source || cut_target) {
      ++corpus.long_lines;
      if (options_.too_long == TooLong::leave_out) return;
    }
    corpus.sources.add(ids_);
    corpus.targets.add(target_ids_);
  }

  /// True when there was something to cut off; the end stays.
  bool cut(std::vector<int32_t>& ids, int64_t most) const {
    if (static_cast<int64_t>(ids.size()) <= most) return false;
    ids.resize(static_cast<size_t>(most));
    ids.back() = tokenizer_.special().end;
    return true;
  }

  const ParallelOptions& options_;
  const PairOptions& pair_;
  const train::Tokenizer& tokenizer_;
  LineReader source_, target_;
  int32_t tag_ = -1;
  std::vector<int32_t> ids_, target_ids_;
};

/// `count` of the numbers first .. first + lines - 1: each as often as all others, the rest drawn without repetition.
void choose(int64_t first, int64_t lines, int64_t count, const base::Philox& random, std::vector<int32_t>& chosen) {
  std::vector<int32_t> all(static_cast<size_t>(lines));
  std::iota(all.begin(), all.end(), static_cast<int32_t>(first));
  for (; count >= lines; count -= lines) chosen.insert(chosen.end(), all.begin(), all.end());
  for (int64_t i = 0; i < count; ++i) {
    const auto from = static_cast<uint32_t>(i) + random.below(static_cast<uint64_t>(i), static_cast<uint32_t>(lines - i));
    std::swap(all[static_cast<size_t>(i)], all[from]);
  }
  chosen.insert(chosen.end(), all.begin(), all.begin() + count);
}

/// The lines of an epoch. See the head of this file.
std::vector<int32_t> compose_epoch(std::span<const int64_t> lines, double temperature, int64_t seed) {
  const auto most = static_cast<double>(*std::max_element(lines.begin(), lines.end()));
  std::vector<int32_t> chosen;
  int64_t first = 0;
  for (size_t pair = 0; pair < lines.size(); ++pair) {
    const double share = std::pow(static_cast<double>(lines[pair]) / most, 1.0 / temperature);
    const int64_t count = temperature == 1 ? lines[pair] : std::max<int64_t>(1, std::llround(most * share));
    choose(first, lines[pair], count, {static_cast<uint64_t>(seed), base::Purpose::split, pair + 1}, chosen);
    first += lines[pair];
  }
  return chosen;
}

class ParallelDataset final : public train::Dataset {
 public:
  ParallelDataset(const ParallelOptions& options, std::unique_ptr<train::Tokenizer> tokenizer, Stamped model)
      : tokenizer_(std::move(tokenizer)), corpus_(tokenizer_->size()) {
    corpus_.files.push_back(std::move(model));
    std::vector<int64_t> lines;
    for (const PairOptions& pair : options.read_pairs) lines.push_back(PairReader(options, pair, *tokenizer_).read_into(corpus_));
    samples_ = compose_epoch(lines, options.temperature, options.seed);
    spec_.input = tensor::Shape({options.source_length});
    spec_.target = tensor::Shape({options.target_length});
    spec_.input_type = tensor::DType::i32;
    spec_.classes = tokenizer_->size();
    spec_.narrower = options.narrower;
    const auto& first = options.read_pairs.front();
    name_ = fmt::format("parallel {} -> {}", short_name(first.source), short_name(first.target));
    if (lines.size() > 1) name_ += fmt::format(" and {} more pair{}", lines.size() - 1, lines.size() == 2 ? "" : "s");
  }

  const train::SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  int bucket_of(int64_t index) const override {
    const auto line = static_cast<size_t>(samples_.at(static_cast<size_t>(index)));
    const int64_t source = corpus_.sources.length(line), target = corpus_.targets.length(line);
    int bucket = 0;
    for (const train::BucketShape& shape : spec_.narrower) {
      if (source > shape.input[0] || target > shape.target[0]) break;
      ++bucket;
    }
    return bucket;
  }
  int64_t long_lines() const { return corpus_.long_lines; }
  int64_t lines() const { return corpus_.size(); }

  void read(int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    const auto line = static_cast<size_t>(samples_.at(static_cast<size_t>(index)));
    const std::span<int32_t> source = train::as_ints(input), next = train::as_ints(target);
    const size_t sources = corpus_.sources.read(line, source);
    std::fill(source.begin() + static_cast<std::ptrdiff_t>(sources), source.end(), tokenizer_->special().padding);
    const size_t targets = corpus_.targets.read(line, next);
    std::fill(next.begin() + static_cast<std::ptrdiff_t>(targets), next.end(), ignored_target);
  }
  void recheck() const override { recheck_files(corpus_.files); }
  const train::Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  std::string describe() const override {
    return fmt::format("{}, {} sample{} of {} to {} tokens ({} lines, {})", name_, grouped(size()), size() == 1 ? "" : "s",
                       spec_.input[0], spec_.target[0], grouped(corpus_.size()), tokenizer_->describe());
  }

 private:
  std::unique_ptr<train::Tokenizer> tokenizer_;
  Corpus corpus_;
  std::vector<int32_t> samples_;  // lines of the corpus
  train::SampleSpec spec_;
  std::string name_;
};

void read_pairs(ParallelOptions& options, const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  if (!options.pairs.is_list() || options.pairs.items().empty()) {
    complain(arguments, path, "pairs", "wanted a list, as in [{source: train.en, target: train.de}]", problems);
    return;
  }
  for (size_t i = 0; i < options.pairs.items().size(); ++i) {
    const std::string place = fmt::format("{}.{}", base::detail::join_path(path, "pairs"), i);
    pair_fields().read(options.pairs.items()[i], place, options.read_pairs.emplace_back(), problems);
  }
}

void read_buckets(ParallelOptions& options, const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  const std::string example = fmt::format("[[12, 12], [{}, {}]]", std::max<int64_t>(options.source_length, 13),
                                          std::max<int64_t>(options.target_length, 13));
  if (!options.buckets.is_list() || options.buckets.items().empty()) {
    complain(arguments, path, "buckets", "wanted a list of [source, target] lengths, as in " + example, problems);
    return;
  }
  const std::string key = base::detail::join_path(path, "buckets");
  base::FieldInfo info;
  info.key = "buckets";
  info.low = 1;
  std::vector<std::vector<int64_t>> lengths;
  for (const base::Tree& item : options.buckets.items()) {
    const auto pair = base::detail::read_integers(item, key, info, problems);
    if (!pair) return;
    if (pair->size() != 2) {
      problems.add(item.where(), key,
                   fmt::format("wanted a source and a target length, as in [12, 12], found {} numbers", pair->size()));
      return;
    }
    const bool grows =
        lengths.empty() || (pair->at(0) >= lengths.back()[0] && pair->at(1) >= lengths.back()[1] && *pair != lengths.back());
    if (!grows) {
      problems.add(
          item.where(), key,
          fmt::format("[{}, {}] comes after [{}, {}]: list the buckets from the shortest to the longest, none shorter in "
                      "source or target than the one before it",
                      pair->at(0), pair->at(1), lengths.back()[0], lengths.back()[1]));
      return;
    }
    lengths.push_back(*pair);
  }
  if (lengths.back() != std::vector{options.source_length, options.target_length}) {
    problems.add(options.buckets.items().back().where(), key,
                 fmt::format("the last bucket is [{}, {}], but source_length and target_length say [{}, {}]: make them the same",
                             lengths.back()[0], lengths.back()[1], options.source_length, options.target_length));
    return;
  }
  for (size_t i = lengths.size() - 1; i-- > 0;)
    options.narrower.push_back({tensor::Shape({lengths[i][0]}), tensor::Shape({lengths[i][1]})});
}

std::unique_ptr<train::Dataset> open_parallel(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  ParallelOptions options;
  const size_t before = problems.errors().size();
  parallel_fields().read(arguments, path, options, problems);
  check_range(options.range, arguments, path, problems);
  if (!options.pairs.is_null()) read_pairs(options, arguments, path, problems);
  if (!options.buckets.is_null() && problems.errors().size() == before) read_buckets(options, arguments, path, problems);
  if (problems.errors().size() != before) return nullptr;
  Stamped stamp;
  auto tokenizer = sentencepiece_tokenizer(options.model, &stamp);
  const train::SpecialTokens special = tokenizer->special();
  if (special.padding < 0 || special.end < 0)
    throw base::DataError("{}: the model has no id for {}; gpipe-train tokenize gives both", options.model,
                          special.padding < 0 ? "padding" : "the end of a sentence");
  auto set = std::make_unique<ParallelDataset>(options, std::move(tokenizer), std::move(stamp));
  if (set->long_lines() > 0) {
    const bool cut = options.too_long == TooLong::cut;
    problems.warn(arguments.where(), path,
                  fmt::format("{} of {} lines are longer than {} tokens, or their translations than {}, and were {}",
                              grouped(set->long_lines()), grouped(set->lines() + (cut ? 0 : set->long_lines())),
                              options.source_length, options.target_length, cut ? "cut" : "left out"));
  }
  return set;
}

}  // namespace

const train::DatasetType& parallel_dataset() {
  static const train::DatasetType type{"parallel", "text and its translation, line by line", open_parallel,
                                       [] { return parallel_fields().table(); }};
  return type;
}

}  // namespace gpipe::data
