// Numbers as files store them, to the f32 that training uses. One rule for all readers: an integer or a double becomes the
// nearest f32; a double beyond f32's range becomes infinity and is then refused like one.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace gpipe::data {

enum class Stored { u8, i8, i16, i32, i64, f32, f64 };

constexpr size_t size_of(Stored type) {
  switch (type) {
    case Stored::u8:
    case Stored::i8: return 1;
    case Stored::i16: return 2;
    case Stored::i32:
    case Stored::f32: return 4;
    case Stored::i64:
    case Stored::f64: return 8;
  }
  return 0;
}

constexpr const char* name_of(Stored type) {
  constexpr const char* names[] = {"u8", "i8", "i16", "i32", "i64", "f32", "f64"};
  return names[static_cast<size_t>(type)];
}

constexpr bool is_integer(Stored type) { return type != Stored::f32 && type != Stored::f64; }

/// One number of `bytes`, whose bytes stand in the order `order`.
template <class T>
T load(const uint8_t* bytes, std::endian order) {
  uint8_t turned[sizeof(T)];
  for (size_t i = 0; i < sizeof(T); ++i) turned[i] = bytes[order == std::endian::native ? i : sizeof(T) - 1 - i];
  T value;
  std::memcpy(&value, turned, sizeof(T));
  return value;
}

/// Calls `use(number)` for each number of `bytes`, in order.
template <class Use>
void each_number(std::span<const uint8_t> bytes, Stored type, std::endian order, Use&& use) {
  const auto walk = [&]<class T>(T) {
    for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) use(load<T>(bytes.data() + at, order));
  };
  switch (type) {
    case Stored::u8: return walk(uint8_t{});
    case Stored::i8: return walk(int8_t{});
    case Stored::i16: return walk(int16_t{});
    case Stored::i32: return walk(int32_t{});
    case Stored::i64: return walk(int64_t{});
    case Stored::f32: return walk(float{});
    case Stored::f64: return walk(double{});
  }
}

inline std::vector<float> to_floats(std::span<const uint8_t> bytes, Stored type, std::endian order) {
  std::vector<float> floats;
  floats.reserve(bytes.size() / size_of(type));
  each_number(bytes, type, order, [&](auto number) { floats.push_back(static_cast<float>(number)); });
  return floats;
}

/// Integers as class labels; what does not fit 32 bits becomes -1, which no check lets pass.
inline std::vector<int32_t> to_labels(std::span<const uint8_t> bytes, Stored type, std::endian order) {
  std::vector<int32_t> labels;
  labels.reserve(bytes.size() / size_of(type));
  each_number(bytes, type, order, [&](auto number) {
    const auto wide = static_cast<int64_t>(number);
    labels.push_back(wide == static_cast<int32_t>(wide) ? static_cast<int32_t>(wide) : -1);
  });
  return labels;
}

}  // namespace gpipe::data
