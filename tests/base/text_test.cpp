// Numbers and tables as a reader sees them.
#include "core/base/text.h"

#include <doctest/doctest.h>

#include <limits>

namespace gpipe::base {

TEST_CASE("bytes, counts and durations are short and carry their unit") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(3 << 19) == "1.5 MiB");
  CHECK(format_bytes((int64_t{1} << 30) - 1) == "1.0 GiB");
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1'234'567) == "1,234,567");
  CHECK(format_count(-1'000) == "-1,000");
  CHECK(format_count(-999) == "-999");
  CHECK(format_count_short(9'999) == "9,999");
  CHECK(format_count_short(1'234'567) == "1.2 M");
  CHECK(format_duration(0.00085) == "0.85 ms");
  CHECK(format_duration(0.0123) == "12.3 ms");
  CHECK(format_duration(0.5) == "500 ms");
  CHECK(format_duration(12.34) == "12.3 s");
  CHECK(format_duration(59.96) == "1 min 00 s");
  CHECK(format_duration(185) == "3 min 05 s");
  CHECK(format_duration(3720) == "1 h 02 min");
  CHECK(format_duration(183600) == "2 d 03 h");
  CHECK(format_duration(std::numeric_limits<double>::infinity()) == "?");
}

TEST_CASE("a table lines its columns up, whatever the bytes of a character") {
  Table table({{"layer"}, {"parameters", Table::Align::right}});
  table.add_row({"caf\xC3\xA9", "12"});
  table.add_row({"linear_1", "1,234,567"});
  table.add_rule();
  table.add_row({"sum"});
  CHECK(table.text("  ") ==
        "  layer     parameters\n"
        "  --------  ----------\n"
        "  caf\xC3\xA9              12\n"
        "  linear_1   1,234,567\n"
        "  --------  ----------\n"
        "  sum\n");
}

TEST_CASE("words are wrapped at the width, and a word that is longer stands alone") {
  CHECK(wrap("one two three", 80) == "one two three");
  CHECK(wrap("one two three", 7, 2) == "one two\n  three");
  CHECK(wrap("a extraordinarily b", 6, 1) == "a\n extraordinarily\n b");
  CHECK(wrap("", 6) == "");
}

}  // namespace gpipe::base
