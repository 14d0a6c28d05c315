#include "app/generate_options.h"

#include <fmt/format.h>

namespace gpipe::app {

base::FieldSet<GenerateOptions> generate_fields() {
  using Options = GenerateOptions;
  base::FieldSet<Options> f{"predict"};
  f.add("--prompt", &Options::prompt).unit("TEXT").help("continue this text (token ids, where the data has no text)");
  f.add("--prompt-file", &Options::prompt_file).unit("FILE").help("the same with the text of a file");
  f.add("--length", &Options::length)
      .range(0, 1 << 24)
      .unit("tokens")
      .help("to write; 0: 200, and of a translation as many as the network has positions");
  f.add("--temperature", &Options::temperature)
      .range(0, 1000)
      .help("of the softmax that a continuation is drawn from; 0: always the likeliest token");
  f.add("--top-k", &Options::top_k).range(0, 1 << 24).unit("tokens").help("draw from the likeliest alone; 0: from all");
  f.add("--seed", &Options::seed).at_least(0).help("of the draws");
  f.add("--input-text", &Options::input_text).unit("FILE").help("translate each line; - is standard input");
  f.add("--tag", &Options::tag).help("token of the language to translate into, as in data.train.parallel.pairs");
  f.add("--beam", &Options::beam).range(1, 1024).help("hypotheses of a translation that are kept; 1: greedy");
  f.add("--length-penalty", &Options::length_penalty)
      .range(0, 10)
      .help("hypotheses compare by log p / ((5 + tokens) / 6)^this (Wu et al. 2016)");
  return f;
}

void settle(GenerateOptions& options, const base::Tree& given, base::Problems& problems) {
  const auto has = [&](const char* flag) { return given.find(flag) != nullptr; };
  options.prompted = has("--prompt") || has("--prompt-file");
  const bool translates = !options.input_text.empty();
  if (has("--prompt") && has("--prompt-file")) problems.add({}, "--prompt-file", "--prompt is there too: give one of them");
  if (options.prompted && translates) problems.add({}, "--input-text", "is for translation, --prompt for a text that goes on");
  for (const char* flag : {"--temperature", "--top-k", "--seed"})
    if (has(flag) && !options.prompted) problems.add({}, flag, "is for the continuation of a --prompt");
  for (const char* flag : {"--tag", "--beam", "--length-penalty"})
    if (has(flag) && !translates) problems.add({}, flag, "is for the translation of an --input-text");
  if (has("--length") && !options.prompted && !translates) problems.add({}, "--length", "wants a --prompt or an --input-text");
}

}  // namespace gpipe::app
