// One plain form for each type: any other form that some reader takes for a number or a boolean is refused by name.
#include "core/base/scalar.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace gpipe::base {
namespace {

template <class T>
std::string reason(const std::variant<T, Refusal>& parsed) {
  const auto* refusal = std::get_if<Refusal>(&parsed);
  return refusal == nullptr ? "accepted" : refusal->reason;
}

struct Row {
  std::string text;
  std::string says;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("plain decimal integers are read") {
  CHECK(std::get<int64_t>(parse_integer("0")) == 0);
  CHECK(std::get<int64_t>(parse_integer("-1")) == -1);
  CHECK(std::get<int64_t>(parse_integer("1000")) == 1000);
  CHECK(std::get<int64_t>(parse_integer("9223372036854775807")) == std::numeric_limits<int64_t>::max());
  CHECK(std::get<int64_t>(parse_integer("-9223372036854775808")) == std::numeric_limits<int64_t>::min());
}

TEST_CASE("Y21: every other form of an integer is refused by name") {
  const std::vector<Row> rows{
      {"-0", "negative zero"},   {"+5", "plus sign"},      {"010", "leading zero"},
      {"-010", "leading zero"},  {"0x10", "write 16"},     {"0X1f", "write 31"},
      {"0o17", "octal"},         {"0b101", "binary"},      {"1_000", "underscores"},
      {"1e3", "exponent"},       {"1E3", "exponent"},      {"1.0", "decimal point"},
      {"1.", "after the point"}, {".5", "write 0.5"},      {"190:20:30", "base 60"},
      {".inf", "finite"},        {".NaN", "finite"},       {"9223372036854775808", "64 bits"},
      {"00", "leading zero"},    {"1_0.5", "underscores"}, {"99999999999999999999999", "64 bits"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    CHECK(contains(reason(parse_integer(row.text)), row.says));
  }
  for (const char* text : {"abc", "", "1 2", "1x", "--1", "-", "12a", "0x", "1e", "1,000"}) {
    CAPTURE(text);
    CHECK(std::holds_alternative<Refusal>(parse_integer(text)));
  }
}

TEST_CASE("decimal numbers are read to the last bit") {
  CHECK(std::get<double>(parse_number("0.1")) == 0.1);
  CHECK(std::get<double>(parse_number("-2.5e-3")) == -2.5e-3);
  CHECK(std::get<double>(parse_number("1e3")) == 1000);
  CHECK(std::get<double>(parse_number("1E+3")) == 1000);
  CHECK(std::get<double>(parse_number("3")) == 3);
  CHECK(std::get<double>(parse_number("0.0")) == 0);
  CHECK(std::get<double>(parse_number("0e-999")) == 0);
  CHECK(std::get<double>(parse_number("1.7976931348623157e308")) == std::numeric_limits<double>::max());
  CHECK(std::get<double>(parse_number("2.2250738585072014e-308")) == std::numeric_limits<double>::min());
}

TEST_CASE("Y22: a number must be finite, not vanish, and have no more digits than it can hold") {
  const std::vector<Row> rows{
      {".inf", "finite"},
      {"-.inf", "finite"},
      {".nan", "finite"},
      {"nan", "finite"},
      {"Infinity", "finite"},
      {"1e400", "1.8e308"},
      {"-1e400", "1.8e308"},
      {"1e-400", "nearer to 0"},
      {"1e-310", "nearer to 0"},
      {"0.12345678901234567890", "20 digits"},
      {"12345678901234567890", "20 digits"},
      {"1_0.0", "underscores"},
      {"+0.5", "plus sign"},
      {".5", "write 0.5"},
      {"5.", "after the point"},
      {"01.5", "leading zero"},
      {"0x1p3", ""},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    const auto parsed = parse_number(row.text);
    CHECK(std::holds_alternative<Refusal>(parsed));
    CHECK(contains(reason(parsed), row.says));
  }
}

TEST_CASE("only true and false are booleans, the other words of YAML 1.1 are refused by name") {
  CHECK(std::get<bool>(parse_boolean("true")));
  CHECK(!std::get<bool>(parse_boolean("false")));
  for (const char* text : {"yes", "Yes", "ON", "y", "True", "TRUE"}) {
    CAPTURE(text);
    CHECK(contains(reason(parse_boolean(text)), "write true"));
  }
  for (const char* text : {"no", "off", "N", "False"}) {
    CAPTURE(text);
    CHECK(contains(reason(parse_boolean(text)), "write false"));
  }
  CHECK(std::holds_alternative<Refusal>(parse_boolean("1")));
}

TEST_CASE("bytes are digits with a unit of 1024 or of 1000, or a whole number without one") {
  CHECK(std::get<int64_t>(parse_bytes("0")) == 0);
  CHECK(std::get<int64_t>(parse_bytes("1073741824")) == 1073741824);
  CHECK(std::get<int64_t>(parse_bytes("8GiB")) == int64_t{8} << 30);
  CHECK(std::get<int64_t>(parse_bytes("1.5 MiB")) == 1572864);
  CHECK(std::get<int64_t>(parse_bytes("2GB")) == 2'000'000'000);
  CHECK(std::get<int64_t>(parse_bytes("512B")) == 512);
  for (const char* text :
       {"", "GiB", "8gib", "8 gigs", "8GiBs", "-1", "0x10", "1e3", "8GiB 2", "1.5", "1048577TiB", "1..5GiB", ".5GiB"}) {
    CAPTURE(text);
    CHECK(std::holds_alternative<Refusal>(parse_bytes(text)));
  }
  CHECK(contains(reason(parse_bytes("1.5")), "a unit is missing"));
  CHECK(contains(reason(parse_bytes("8gib")), "write 8GiB"));
}

TEST_CASE("an unquoted scalar has one type") {
  CHECK(scalar_type("") == ScalarType::null);
  CHECK(scalar_type("~") == ScalarType::null);
  CHECK(scalar_type("true") == ScalarType::boolean);
  CHECK(scalar_type("-7") == ScalarType::integer);
  CHECK(scalar_type("1e-3") == ScalarType::number);
  for (const char* text : {"yes", "0x10", "010", "1_000", ".inf", "+1", "12:30"}) CHECK(scalar_type(text) == ScalarType::unclear);
  for (const char* text : {"relu", "3x3", "conv2d", "a.b", "-", "1.2.3", "./x"}) CHECK(scalar_type(text) == ScalarType::text);
}

TEST_CASE("a message shows text shortened, on one line, and never half a character") {
  CHECK(shown("a\nb\x01") == "\"a\\nb\\x01\"");
  CHECK(shown(std::string(70, 'x')) == "\"" + std::string(60, 'x') + "...\" (70 bytes)");
  CHECK(shown(std::string(59, 'x') + "\xC3\xA9\xC3\xA9") == "\"" + std::string(59, 'x') + "...\" (63 bytes)");
}

}  // namespace gpipe::base
