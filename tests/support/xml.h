// Is a text well-formed XML of the plain kind that we write: elements, attributes in double quotes, five entities?
#pragma once

#include <regex>
#include <string>
#include <vector>

namespace gpipe::test {

/// What is wrong with it first, or "". One root element; every tag closed in order; nothing stray.
inline std::string xml_fault(const std::string& text) {
  static const std::regex open(R"re(<([A-Za-z][\w]*)((\s+[\w:-]+="[^"<&]*")*)\s*(/?)>)re"), close(R"re(</([A-Za-z]\w*)>)re");
  static const std::regex words(R"re(([^<&>]|&(amp|lt|gt|quot|apos);)*)re");
  std::vector<std::string> stack;
  int roots = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find('<', at), text.size());
    const std::string between = text.substr(at, next - at);
    if (!std::regex_match(between, words)) return "stray characters in: " + between;
    if (stack.empty() && between.find_first_not_of(" \n") != std::string::npos) return "text outside the root: " + between;
    if (next == text.size()) break;
    const size_t end = text.find('>', next);
    if (end == std::string::npos) return "a tag that does not end";
    const std::string tag = text.substr(next, end - next + 1);
    std::smatch found;
    if (std::regex_match(tag, found, close)) {
      if (stack.empty() || stack.back() != found[1]) return "closed but not open: " + tag;
      stack.pop_back();
    } else if (std::regex_match(tag, found, open)) {
      if (stack.empty()) ++roots;
      if (found[4].length() == 0) stack.push_back(found[1]);
    } else {
      return "no tag: " + tag;
    }
    at = end + 1;
  }
  if (!stack.empty()) return "never closed: " + stack.back();
  return roots == 1 ? "" : "not one root";
}

}  // namespace gpipe::test
