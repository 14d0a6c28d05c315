// Scalars as the strict reader sees them: one plain form for each type, and a name for every form that is refused.
//
// YAML readers disagree about `010`, `1_000`, `0x10`, `yes` and the like. Here they are never a number or a boolean;
// whoever writes one is told which form it is and what to write instead. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace gpipe::base {

/// What an unquoted scalar is. `unclear` are the forms that some YAML readers take for a number, boolean or null.
enum class ScalarType { null, boolean, integer, number, unclear, text };
ScalarType scalar_type(const std::string& text);

/// Why a scalar is not what was wanted: "hexadecimal is not accepted: write 16".
struct Refusal {
  std::string reason;
};

/// `-?[1-9][0-9]*` or `0`, in 64 bits.
std::variant<int64_t, Refusal> parse_integer(const std::string& text);

/// An integer or decimal number with an optional exponent, at most 17 digits, finite, and not so small that it becomes 0.
std::variant<double, Refusal> parse_number(const std::string& text);

/// `true` or `false`; YAML 1.1's other words are refused by name.
std::variant<bool, Refusal> parse_boolean(const std::string& text);

/// Bytes: digits with a unit B, KiB, MiB, GiB, TiB (of 1024) or KB, MB, GB, TB (of 1000), "8GiB", "1.5 GiB"; without a unit
/// a whole number of bytes. At most 2^60.
std::variant<int64_t, Refusal> parse_bytes(const std::string& text);

/// The text as a message shows it: in quotes, control characters escaped, shortened to 60 bytes.
std::string shown(const std::string& text);
/// The text with '?' for each control character: a name from a file that goes to a terminal.
std::string without_controls(std::string text);

}  // namespace gpipe::base
