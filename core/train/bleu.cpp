#include "core/train/bleu.h"

#include "core/base/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

namespace gpipe::train {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }
bool stop(char c) { return c == '.' || c == ','; }

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Bytes of the white space (as Python's str.split knows it) that `text` begins with; 0: none. Unicode's White_Space, and the
/// four separators of ASCII.
size_t white_space(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  if (byte(0) == ' ' || (byte(0) >= 0x09 && byte(0) <= 0x0D) || (byte(0) >= 0x1C && byte(0) <= 0x1F)) return 1;
  if (byte(0) == 0xC2 && (byte(1) == 0x85 || byte(1) == 0xA0)) return 2;
  if (byte(0) == 0xE1 && byte(1) == 0x9A && byte(2) == 0x80) return 3;                     // U+1680
  if (byte(0) == 0xE2 && byte(1) == 0x80 && byte(2) >= 0x80 && byte(2) <= 0x8A) return 3;  // U+2000..200A
  if (byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) == 0xA8 || byte(2) == 0xA9 || byte(2) == 0xAF)) return 3;
  if (byte(0) == 0xE2 && byte(1) == 0x81 && byte(2) == 0x9F) return 3;  // U+205F
  if (byte(0) == 0xE3 && byte(1) == 0x80 && byte(2) == 0x80) return 3;  // U+3000
  return 0;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t blank = at < text.size() ? white_space(text.substr(at)) : 1;
    if (blank > 0) {
      if (at > begin) words.push_back(text.substr(begin, at - begin));
      begin = at + blank;
    }
    at += std::max<size_t>(blank, 1);
  }
  return words;
}

/// Puts spaces where `between(left, right)` says so for two neighbours, each byte taking part in one place alone, as a
/// replacement by a regular expression of two characters goes: `around` the first of the two, or behind each.
template <class Match>
std::string spaced(const std::string& text, std::string_view before, std::string_view middle, std::string_view after,
                   Match match) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (i + 1 < text.size() && match(text[i], text[i + 1])) {
      out.append(before).append(1, text[i]).append(middle).append(1, text[i + 1]).append(after);
      i += 2;
    } else {
      out.push_back(text[i++]);
    }
  }
  return out;
}

/// All printable ASCII that is no letter, digit, apostrophe, comma, hyphen or full stop.
bool symbol(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

using Gram = std::array<int32_t, k_bleu_orders>;  // numbers of words, -1 behind

/// How often each n-gram occurs in `words`.
std::map<Gram, int64_t> count_grams(std::span<const int32_t> words) {
  std::map<Gram, int64_t> counts;
  for (size_t begin = 0; begin < words.size(); ++begin) {
    Gram gram;
    gram.fill(-1);
    for (size_t n = 0; n < static_cast<size_t>(k_bleu_orders) && begin + n < words.size(); ++n) {
      gram[n] = words[begin + n];
      ++counts[gram];
    }
  }
  return counts;
}

size_t order_of(const Gram& gram) { return static_cast<size_t>(std::find(gram.begin(), gram.end(), -1) - gram.begin()) - 1; }

std::vector<int32_t> numbered(const std::string& line, std::unordered_map<std::string, int32_t>& numbers) {
  std::vector<int32_t> words;
  const std::string tokens = tokenize_13a(line);
  for (const std::string_view word : split(tokens))
    words.push_back(numbers.try_emplace(std::string(word), static_cast<int32_t>(numbers.size())).first->second);
  return words;
}

/// Precisions, penalty and score of the counts. An order without a match counts as half a match, the next such order as a
/// quarter, and so on (Chen and Cherry 2014, method 3); without any match, or any 4-gram, the score is 0.
void settle(Bleu& bleu) {
  bleu.brevity_penalty = 1;
  if (bleu.hypothesis_length < bleu.reference_length)
    bleu.brevity_penalty =
        bleu.hypothesis_length == 0
            ? 0
            : std::exp(1.0 - static_cast<double>(bleu.reference_length) / static_cast<double>(bleu.hypothesis_length));
  if (std::all_of(bleu.matches.begin(), bleu.matches.end(), [](int64_t n) { return n == 0; })) return;
  double smoothing = 1, sum = 0;
  for (size_t n = 0; n < bleu.matches.size(); ++n) {
    if (bleu.totals[n] == 0) return;
    const double total = static_cast<double>(bleu.totals[n]);
    bleu.precisions[n] =
        bleu.matches[n] > 0 ? 100.0 * static_cast<double>(bleu.matches[n]) / total : 100.0 / ((smoothing *= 2) * total);
    sum += std::log(bleu.precisions[n]);
  }
  bleu.score = bleu.brevity_penalty * std::exp(sum / k_bleu_orders);
}

}  // namespace

std::string tokenize_13a(std::string_view line) {
  std::string text(line);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  for (const auto& [entity, character] : {std::pair{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}})
    replace_all(text, entity, character);
  std::string parted = " ";
  for (const char c : text) {
    if (symbol(c))
      parted.append(1, ' ').append(1, c).append(1, ' ');
    else
      parted.push_back(c);
  }
  parted.push_back(' ');
  parted = spaced(parted, "", " ", " ", [](char a, char b) { return !digit(a) && stop(b); });
  parted = spaced(parted, " ", " ", "", [](char a, char b) { return stop(a) && !digit(b); });
  parted = spaced(parted, "", " ", " ", [](char a, char b) { return digit(a) && b == '-'; });
  return fmt::format("{}", fmt::join(split(parted), " "));
}

Bleu bleu(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  GP_CHECK_EQ(hypotheses.size(), references.size());
  Bleu result;
  std::unordered_map<std::string, int32_t> numbers;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const std::vector<int32_t> words = numbered(hypotheses[i], numbers), wanted = numbered(references[i], numbers);
    result.hypothesis_length += static_cast<int64_t>(words.size());
    result.reference_length += static_cast<int64_t>(wanted.size());
    const std::map<Gram, int64_t> there = count_grams(wanted);
    for (const auto& [gram, count] : count_grams(words)) {
      const size_t n = order_of(gram);
      result.totals[n] += count;
      const auto found = there.find(gram);
      if (found != there.end()) result.matches[n] += std::min(count, found->second);
    }
  }
  settle(result);
  return result;
}

std::string Bleu::text() const {
  const double ratio =
      reference_length > 0 ? static_cast<double>(hypothesis_length) / static_cast<double>(reference_length) : 0.0;
  return fmt::format("BLEU = {:.2f} {:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})", score,
                     precisions[0], precisions[1], precisions[2], precisions[3], brevity_penalty, ratio, hypothesis_length,
                     reference_length);
}

}  // namespace gpipe::train
