#include "core/base/scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

namespace gpipe::base {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool all_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view without_minus(std::string_view text) {
  if (!text.empty() && text.front() == '-') text.remove_prefix(1);
  return text;
}

/// `-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`, taken apart.
struct Decimal {
  bool valid = false;
  bool has_point = false, has_exponent = false;
  std::string_view whole, fraction;
};

Decimal take_apart(std::string_view text) {
  Decimal d;
  std::string_view rest = without_minus(text);
  const auto digits = [&rest] {
    const size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const std::string_view found = rest.substr(0, end);
    rest.remove_prefix(end);
    return found;
  };
  d.whole = digits();
  if (d.whole.empty() || (d.whole.size() > 1 && d.whole.front() == '0')) return d;
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    d.has_point = true;
    d.fraction = digits();
    if (d.fraction.empty()) return d;
  }
  if (!rest.empty() && (rest.front() == 'e' || rest.front() == 'E')) {
    rest.remove_prefix(1);
    d.has_exponent = true;
    if (!rest.empty() && (rest.front() == '+' || rest.front() == '-')) rest.remove_prefix(1);
    if (digits().empty()) return d;
  }
  d.valid = rest.empty();
  return d;
}

bool based(std::string_view body, char letter, std::string_view digits) {
  return body.size() > 2 && body[0] == '0' && std::tolower(static_cast<unsigned char>(body[1])) == letter &&
         body.find_first_not_of(digits, 2) == std::string_view::npos;
}

std::string hexadecimal_hint(std::string_view body) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(body.data() + 2, body.data() + body.size(), value, 16);
  return error == std::errc{} && end == body.data() + body.size() ? fmt::format(": write {}", value) : ": write it in decimal";
}

/// Names a number written in a form that is not accepted, with a hint; "" when it is no such form.
std::string odd_form(const std::string& text) {
  const std::string_view body = without_minus(text);
  if (body.empty()) return "";
  if (body.front() == '+' && body.size() > 1 && (is_digit(body[1]) || body[1] == '.')) {
    return "a plus sign is not accepted: leave it out";
  }
  if (based(body, 'x', "0123456789abcdefABCDEF")) return "hexadecimal is not accepted" + hexadecimal_hint(body);
  if (based(body, 'o', "01234567")) return "octal is not accepted: write it in decimal";
  if (based(body, 'b', "01")) return "binary is not accepted: write it in decimal";
  const std::string small = lower(body[0] == '.' ? body.substr(1) : body);
  if (small == "inf" || small == "infinity" || small == "nan") return "it must be finite";
  if (body.front() == '.' && body.size() > 1 && is_digit(body[1])) return "a digit is missing before the point: write 0" + text;
  if (!is_digit(body.front())) return "";
  if (body.find('_') != std::string_view::npos && body.find_first_not_of("0123456789_.eE+-") == std::string_view::npos) {
    return "underscores are not accepted: leave them out";
  }
  if (body.size() > 1 && body.front() == '0' && is_digit(body[1]) &&
      body.find_first_not_of("0123456789.eE+-") == std::string_view::npos) {
    return "a leading zero (octal for some readers) is not accepted: leave it out";
  }
  if (body.back() == '.' && all_digits(body.substr(0, body.size() - 1))) return "a digit is missing after the point";
  if (body.find(':') != std::string_view::npos && body.find_first_not_of("0123456789:.") == std::string_view::npos) {
    return "base 60 is not accepted: write it in decimal";
  }
  return "";
}

bool is_null_word(const std::string& text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

/// The boolean that YAML 1.1 sees in a word that is neither `true` nor `false`; "" when it sees none.
std::string odd_boolean(const std::string& text) {
  static constexpr std::array<std::string_view, 5> yes{"y", "yes", "on", "true", "t"};
  static constexpr std::array<std::string_view, 5> no{"n", "no", "off", "false", "f"};
  const std::string small = lower(text);
  if (std::find(yes.begin(), yes.end(), small) != yes.end()) return "true";
  if (std::find(no.begin(), no.end(), small) != no.end()) return "false";
  return "";
}

}  // namespace

ScalarType scalar_type(const std::string& text) {
  if (is_null_word(text)) return ScalarType::null;
  if (text == "true" || text == "false") return ScalarType::boolean;
  if (const Decimal d = take_apart(text); d.valid) {
    if (text == "-0") return ScalarType::number;
    return d.has_point || d.has_exponent ? ScalarType::number : ScalarType::integer;
  }
  if (!odd_form(text).empty() || !odd_boolean(text).empty()) return ScalarType::unclear;
  return ScalarType::text;
}

std::variant<int64_t, Refusal> parse_integer(const std::string& text) {
  if (const std::string odd = odd_form(text); !odd.empty()) return Refusal{odd};
  const Decimal d = take_apart(text);
  if (!d.valid) return Refusal{""};
  if (d.has_exponent) return Refusal{"an exponent is not accepted for an integer: write the digits out"};
  if (d.has_point) return Refusal{"a decimal point is not accepted for an integer: write " + std::string(d.whole)};
  if (text == "-0") return Refusal{"a negative zero is not accepted: write 0"};
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return Refusal{"it does not fit 64 bits"};
  return value;
}

std::variant<double, Refusal> parse_number(const std::string& text) {
  constexpr size_t max_digits = std::numeric_limits<double>::max_digits10;
  if (const std::string odd = odd_form(text); !odd.empty()) return Refusal{odd};
  const Decimal d = take_apart(text);
  if (!d.valid) return Refusal{""};
  std::string digits = std::string(d.whole) + std::string(d.fraction);
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.size() > max_digits) {
    return Refusal{fmt::format("{} digits are more than the {} that a number can hold", digits.size(), max_digits)};
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool out = error == std::errc::result_out_of_range;
  const bool subnormal = !out && std::abs(value) < std::numeric_limits<double>::min() && !digits.empty();
  // Out of range, from_chars does not say at which end.
  const bool small_form = text.find("e-") != std::string::npos || text.find("E-") != std::string::npos || d.whole == "0";
  if (subnormal || (out && small_form)) return Refusal{"it is nearer to 0 than 2.2e-308: write 0 or a larger number"};
  if (out) return Refusal{"it is beyond 1.8e308, so not finite"};
  if (error != std::errc{} || end != text.data() + text.size()) return Refusal{""};
  return value;
}

std::variant<bool, Refusal> parse_boolean(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  if (const std::string meant = odd_boolean(text); !meant.empty()) {
    return Refusal{fmt::format("{} is not accepted as a boolean: write {}", text, meant)};
  }
  return Refusal{""};
}

std::variant<int64_t, Refusal> parse_bytes(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr std::array<Unit, 10> units{{{"", 1},
                                               {"B", 1},
                                               {"KiB", 0x1p10},
                                               {"MiB", 0x1p20},
                                               {"GiB", 0x1p30},
                                               {"TiB", 0x1p40},
                                               {"KB", 1e3},
                                               {"MB", 1e6},
                                               {"GB", 1e9},
                                               {"TB", 1e12}}};
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view rest = std::string_view(text).substr(end);
  const std::string_view name = rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == name; });
  if (unit == units.end()) return Refusal{"units are B, KiB, MiB, GiB, TiB, KB, MB, GB and TB: write 8GiB"};
  const auto number = parse_number(text.substr(0, end));
  if (const auto* refusal = std::get_if<Refusal>(&number)) return *refusal;
  const double bytes = std::get<double>(number) * unit->bytes;
  if (unit->name.empty() && bytes != std::floor(bytes)) return Refusal{"a unit is missing: write 8GiB"};
  if (bytes > 0x1p60) return Refusal{"it is more than 2^60 bytes"};
  return static_cast<int64_t>(std::llround(bytes));
}

std::string shown(const std::string& text) {
  constexpr size_t limit = 60;
  size_t end = std::min(text.size(), limit);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  std::string out = "\"";
  for (const char c : std::string_view(text).substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (end < text.size() ? fmt::format("...\" ({} bytes)", text.size()) : "\"");
}

std::string without_controls(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

}  // namespace gpipe::base
