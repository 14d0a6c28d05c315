#include "core/train/strict_json.h"

#include "core/base/error.h"

#include <set>
#include <string>
#include <vector>

namespace gpipe::train {

nlohmann::json parse_strict_json(std::string_view text, const std::string& file) {
  using nlohmann::json;
  constexpr size_t deepest = 32;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const json::parser_callback_t watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (static_cast<size_t>(depth) > deepest) throw base::CheckpointError("{}: nested deeper than {}", file, deepest);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw base::CheckpointError("{}: the key \"{}\" stands there twice", file, parsed.get<std::string>());
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& error) {
    const std::string words = error.what();  // behind the library's own "[json.exception.parse_error.101] "
    const size_t end = words.find("] ");
    throw base::CheckpointError("{}: not valid JSON: {}", file, end == std::string::npos ? words : words.substr(end + 2));
  }
}

}  // namespace gpipe::train
