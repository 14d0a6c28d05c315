// What `predict` is asked beside the configuration: to continue a text, or to translate. Any thread.
#pragma once

#include "core/base/fields.h"

#include <cstdint>
#include <string>

namespace gpipe::app {

struct GenerateOptions {
  bool prompted = false;  // --prompt or --prompt-file was given, maybe an empty one
  std::string prompt, prompt_file;
  int64_t length = 0;  // tokens; 0: 200 of a text, as many as the network has positions of a translation
  double temperature = 0;
  int64_t top_k = 0;
  int64_t seed = 1;
  std::string input_text;  // a file with a sentence a line; "-": standard input
  std::string tag;
  int64_t beam = 1;
  double length_penalty = 0.6;
};

/// The keys are the flags.
base::FieldSet<GenerateOptions> generate_fields();
/// After reading: what was given, and what does not go together.
void settle(GenerateOptions& options, const base::Tree& given, base::Problems& problems);

}  // namespace gpipe::app
