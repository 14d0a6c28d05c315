// JSON from files that we did not just write: a duplicate key is an error, as is anything after the value.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace gpipe::train {

/// CheckpointError naming `file`, with the place of a syntax error or the duplicate key.
nlohmann::json parse_strict_json(std::string_view text, const std::string& file);

}  // namespace gpipe::train
