#include "app/generate.h"

#include "app/commands.h"
#include "app/output_file.h"
#include "app/session.h"
#include "core/base/text.h"
#include "core/train/next_token.h"
#include "core/train/translate.h"
#include "data/lines.h"
#include "data/text_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <map>
#include <unistd.h>

namespace gpipe::app {
namespace {

using Ids = std::vector<int32_t>;

/// Does any layer read the targets? Then the network is an encoder and a decoder.
bool translates(const graph::Network& network) {
  const std::vector<int>& readers = network.values[static_cast<size_t>(network.target)].consumers;
  return std::any_of(readers.begin(), readers.end(), [&](int node) { return !network.nodes[static_cast<size_t>(node)].is_loss; });
}

/// Plans anew with mini-batches of at most `rows`, as many as there is work for.
void shrink_batch(Composition& c, int64_t rows) {
  const int64_t stages = c.config.pipeline.partitions;
  const bool in_rounds = c.config.pipeline.schedule == "interleaved";  // as many micro-batches as devices, or twice, ...
  if (in_rounds) rows = std::max<int64_t>(rows, stages);
  if (rows >= c.config.train.batch_size) return;
  int64_t micro_batches = std::min<int64_t>(c.config.pipeline.micro_batches, rows);
  if (in_rounds) micro_batches -= micro_batches % stages;
  c.config.train.batch_size = rows;
  c.config.pipeline.micro_batches = static_cast<decltype(c.config.pipeline.micro_batches)>(micro_batches);
  c.narrower.clear();  // generation is of the widest bucket
  c.plan = plan_with(c, c.config.pipeline);
}

// Continuing a text ---------------------------------------------------------------------------------------------------------

Ids ids_of_numbers(const std::string& text) {
  Ids ids;
  for (size_t at = text.find_first_not_of(" \n\t"); at < text.size(); at = text.find_first_not_of(" \n\t", at)) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    const auto stop = static_cast<size_t>(end - text.data());
    if (error != std::errc() || (stop < text.size() && std::string_view(" \n\t").find(text[stop]) == std::string_view::npos))
      throw base::ConfigError("the data has tokens and no text; wanted token ids, as in 15496 11 995, found {}",
                              data::shown(text.substr(at, text.find_first_of(" \n\t", at) - at)));
    ids.push_back(id);
    at = stop;
  }
  return ids;
}

/// As data set `text` reads it, but without an end behind a last line that goes on.
Ids encode_prompt(const std::string& text, const train::Tokenizer& tokenizer) {
  Ids ids;
  const int32_t end = tokenizer.special().end;
  if (end < 0) {
    tokenizer.encode(text, ids);
    if (ids.empty() && tokenizer.id_of("\n") >= 0) ids.push_back(tokenizer.id_of("\n"));  // at the start of a line
    return ids;
  }
  for (size_t at = 0, stop = 0; at < text.size(); at = stop + 1) {
    stop = std::min(text.find('\n', at), text.size());
    tokenizer.encode(std::string_view(text).substr(at, stop - at), ids);
    if (stop < text.size()) ids.push_back(end);
  }
  if (ids.empty()) ids.push_back(end);
  return ids;
}

std::string decode_text(const Ids& ids, const train::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return fmt::format("{}", fmt::join(ids, " "));
  const int32_t end = tokenizer->special().end;
  if (end < 0) return tokenizer->decode(ids);
  std::string text;
  for (auto at = ids.begin();; ++at) {  // a line up to each end
    const auto stop = std::find(at, ids.end(), end);
    text += tokenizer->decode(Ids(at, stop));
    if (stop == ids.end()) return text;
    text += '\n';
    at = stop;
  }
}

void check_prompt(const Ids& prompt, int64_t vocabulary) {
  if (prompt.empty()) throw base::ConfigError("wanted at least one token to go on from");
  for (const int32_t id : prompt)
    if (id < 0 || id >= vocabulary) throw base::ConfigError("token {} is not in [0, {})", id, vocabulary);
}

int continue_prompt(const Command& command, Composition& c) {
  if (translates(*c.network)) throw base::ConfigError("--prompt: this network makes a text of another one; use --input-text");
  if (!c.data.train->spec().predicts_tokens())
    throw base::ConfigError("--prompt: wanted data whose targets are tokens, found {}", c.data.train->describe());
  const GenerateOptions& o = command.generate;
  const train::Tokenizer* tokenizer = c.data.train->tokenizer();
  const std::string text = o.prompt_file.empty() ? o.prompt : data::read_text(o.prompt_file);
  Ids prompt;
  try {
    prompt = tokenizer == nullptr ? ids_of_numbers(text) : encode_prompt(text, *tokenizer);
    check_prompt(prompt, c.data.train->spec().classes);
  } catch (base::Error& error) {
    error.add_context(o.prompt_file.empty() ? "--prompt" : o.prompt_file);
    throw;
  }
  OutputFile out(command.predict_output);
  shrink_batch(c, 1);
  const TrainedModel model = load_trained(command, c);
  if (!command.quiet) fmt::print(stderr, "{}\n", model.folder);
  train::NextToken next(*model.engine);
  const Ids more =
      train::continue_text(next, prompt, o.length > 0 ? o.length : 200, {o.temperature, o.top_k, static_cast<uint64_t>(o.seed)});
  Ids all = prompt;
  all.insert(all.end(), more.begin(), more.end());
  out.write(decode_text(all, tokenizer) + "\n");
  out.close();
  return 0;
}

// Translation ---------------------------------------------------------------------------------------------------------------

/// Tags of data.train.parallel.pairs, each once.
std::vector<std::string> tags_of(const Composition& c) {
  std::vector<std::string> tags;
  const base::Tree* parallel = c.config.data.train.find("parallel");
  const base::Tree* pairs = parallel != nullptr ? parallel->find("pairs") : nullptr;
  if (pairs == nullptr) return tags;
  for (const base::Tree& pair : pairs->items()) {
    const base::Tree* tag = pair.find("tag");
    if (tag != nullptr && !tag->text().empty() && std::find(tags.begin(), tags.end(), tag->text()) == tags.end())
      tags.push_back(tag->text());
  }
  return tags;
}

std::string chosen_tag(const Composition& c, const std::string& wanted) {
  const std::vector<std::string> tags = tags_of(c);
  if (wanted.empty() && tags.size() <= 1) return tags.empty() ? "" : tags.front();
  if (std::find(tags.begin(), tags.end(), wanted) != tags.end()) return wanted;
  if (tags.empty()) throw base::ConfigError("--tag: the training data has no tags, found {}", data::shown(wanted));
  throw base::ConfigError("--tag: wanted one of {}{}", fmt::join(tags, ", "),
                          wanted.empty() ? "" : ", found " + data::shown(wanted));
}

std::vector<std::string> read_lines(const std::string& path) {
  std::vector<std::string> lines;
  if (path != "-") {
    data::LineReader reader(path);
    for (std::string_view line; reader.next(line);) lines.emplace_back(line);
    return lines;
  }
  for (std::string line; std::getline(std::cin, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

/// Tag, tokens, end of each line that is not blank; longer ones are cut in front of their end, with a warning.
std::vector<Ids> encode_lines(const std::vector<std::string>& lines, const std::string& name, const train::Tokenizer& tokenizer,
                              const std::string& tag, int64_t longest, std::vector<size_t>& places) {
  std::vector<Ids> sources;
  int64_t cut = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    Ids ids;
    if (!tag.empty()) ids.push_back(tokenizer.id_of(tag));
    const size_t before = ids.size();
    try {
      tokenizer.encode(lines[i], ids);
    } catch (base::Error& error) {
      error.add_context(fmt::format("{}:{}", name, i + 1));
      throw;
    }
    if (ids.size() == before) continue;
    ids.push_back(tokenizer.special().end);
    if (static_cast<int64_t>(ids.size()) > longest) {
      ids.resize(static_cast<size_t>(longest));
      ids.back() = tokenizer.special().end;
      ++cut;
    }
    sources.push_back(std::move(ids));
    places.push_back(i);
  }
  if (cut > 0)
    fmt::print(stderr, "warning: {}: {} of {} lines are longer than {} tokens and were cut\n", name, cut, lines.size(), longest);
  return sources;
}

train::BeamOptions beam_options(const GenerateOptions& options, const train::Tokenizer& tokenizer) {
  return {options.beam, options.length_penalty, options.length, tokenizer.special().end, tokenizer.special().padding};
}

/// A live line on a terminal that says how many are done.
std::function<void(int64_t)> progress(size_t all, bool quiet) {
  if (quiet || isatty(STDERR_FILENO) != 1) return {};
  return [all](int64_t done) {
    fmt::print(stderr, "\r{} of {} sentences{}", done, all, done == static_cast<int64_t>(all) ? "\n" : "");
  };
}

int translate_text(const Command& command, Composition& c) {
  const GenerateOptions& o = command.generate;
  const train::Tokenizer* tokenizer = c.data.train->tokenizer();
  check_translates(c, tokenizer);
  const std::string tag = chosen_tag(c, o.tag);
  const std::vector<std::string> lines = read_lines(o.input_text);
  std::vector<size_t> places;
  const auto sources = encode_lines(lines, o.input_text == "-" ? "standard input" : o.input_text, *tokenizer, tag,
                                    c.data.train->spec().input[0], places);
  OutputFile out(command.predict_output);
  std::vector<std::string> translated(lines.size());
  if (!sources.empty()) {
    shrink_batch(c, static_cast<int64_t>(sources.size()) * o.beam);
    const TrainedModel model = load_trained(command, c);
    if (!command.quiet) fmt::print(stderr, "{}\n", model.folder);
    train::NextToken next(*model.engine);
    const auto found = train::translate(next, sources, beam_options(o, *tokenizer), progress(sources.size(), command.quiet));
    for (size_t i = 0; i < found.size(); ++i) translated[places[i]] = tokenizer->decode(found[i].tokens);
  }
  for (const std::string& line : translated) out.write(line + "\n");
  out.close();
  return 0;
}

}  // namespace

void check_translates(const Composition& c, const train::Tokenizer* tokenizer) {
  if (!translates(*c.network))
    throw base::ConfigError(
        "translation needs an encoder and a decoder (a layer that reads `target`); this network continues text: use --prompt");
  if (tokenizer == nullptr || tokenizer->special().end < 0 || tokenizer->special().padding < 0)
    throw base::ConfigError("translation needs the data set `parallel`, found {}", c.data.train->describe());
}

int run_generate(const Command& command, const Catalog& catalog) {
  const auto c = open_session(command, catalog);
  return command.generate.prompted ? continue_prompt(command, *c) : translate_text(command, *c);
}

std::vector<TaggedBleu> bleu_of(const Composition& c, pipeline::Engine& engine, const train::Dataset& data, bool quiet) {
  const train::Tokenizer& tokenizer = *data.tokenizer();
  std::vector<Ids> sources;
  std::vector<std::string> references, hypotheses;
  Ids input(static_cast<size_t>(data.spec().input.elements())), target(static_cast<size_t>(data.spec().target.elements()));
  for (int64_t i = 0; i < data.size(); ++i) {
    data.read(i, std::as_writable_bytes(std::span(input)), std::as_writable_bytes(std::span(target)));
    references.push_back(
        tokenizer.decode(Ids(target.begin(), std::find(target.begin(), target.end(), device::k_ignored_target))));
    sources.emplace_back(input.begin(), std::find(input.begin(), input.end(), tokenizer.special().padding));
  }
  train::NextToken next(engine);
  for (const auto& found : train::translate(next, sources, beam_options({}, tokenizer), progress(sources.size(), quiet)))
    hypotheses.push_back(tokenizer.decode(found.tokens));
  std::vector<TaggedBleu> all{{"", train::bleu(hypotheses, references)}};
  const std::vector<std::string> tags = tags_of(c);
  for (const std::string& tag : tags) {
    std::vector<std::string> mine, wanted;
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].front() != tokenizer.id_of(tag)) continue;
      mine.push_back(hypotheses[i]);
      wanted.push_back(references[i]);
    }
    if (tags.size() > 1 && !mine.empty()) all.push_back({tag, train::bleu(mine, wanted)});
  }
  return all;
}

nlohmann::json json_of(const train::Bleu& bleu) {
  return {{"score", bleu.score},
          {"precisions", bleu.precisions},
          {"brevity_penalty", bleu.brevity_penalty},
          {"hypothesis_length", bleu.hypothesis_length},
          {"reference_length", bleu.reference_length}};
}

int run_bleu(const Command& command, const Catalog&) {
  const std::vector<std::string> hypotheses = read_lines(command.hypotheses), references = read_lines(command.references);
  if (hypotheses.size() != references.size())
    throw base::DataError("{} has {} lines, {} has {}; line i of one is compared with line i of the other", command.hypotheses,
                          hypotheses.size(), command.references, references.size());
  const train::Bleu bleu = train::bleu(hypotheses, references);
  fmt::print("{}\n", command.json ? json_of(bleu).dump() : bleu.text());
  return 0;
}

}  // namespace gpipe::app
