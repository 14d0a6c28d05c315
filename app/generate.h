// Text out of a trained network: continuing a prompt, translating lines, and BLEU of a data set's translations.
#pragma once

#include "app/cli.h"
#include "app/compose.h"
#include "core/pipeline/engine.h"
#include "core/train/bleu.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace gpipe::app {

/// predict with --prompt, --prompt-file or --input-text. Returns the exit code.
int run_generate(const Command& command, const Catalog& catalog);

/// ConfigError unless the network makes a text of another one (its decoder reads what it has to predict) and the data knows
/// the words.
void check_translates(const Composition& composition, const train::Tokenizer* tokenizer);

struct TaggedBleu {
  std::string tag;  // of the target's language; empty: of all samples
  train::Bleu bleu;
};
/// Translates the sources of `data` greedily and compares with its targets, as they come out of their tokens: all samples, and
/// by tag where there are several.
std::vector<TaggedBleu> bleu_of(const Composition& composition, pipeline::Engine& engine, const train::Dataset& data, bool quiet);

nlohmann::json json_of(const train::Bleu& bleu);

}  // namespace gpipe::app
