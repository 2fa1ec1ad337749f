// Whether bytes are UTF-8, as protobuf demands of every `string`: no overlong forms, no
// surrogates, nothing above U+10FFFF.
#pragma once

#include "otel_straggler/protobuf.hpp"

namespace otel_straggler {

namespace detail {

inline bool is_tail(std::uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the character at `at`, which is not ASCII; 0 if it is none.
inline std::size_t utf8_character(const std::uint8_t* at, std::size_t left) {
  const std::uint8_t first = at[0];
  if (first < 0xC2 || first > 0xF4 || left < 2) return 0;
  const std::uint8_t second = at[1];
  if (!is_tail(second)) return 0;
  if (first < 0xE0) return 2;
  if (left < 3 || !is_tail(at[2])) return 0;
  if (first < 0xF0) {
    const bool is_overlong = first == 0xE0 && second < 0xA0;
    const bool is_surrogate = first == 0xED && second >= 0xA0;
    return is_overlong || is_surrogate ? 0 : 3;
  }
  if (left < 4 || !is_tail(at[3])) return 0;
  const bool is_overlong = first == 0xF0 && second < 0x90;
  const bool is_too_high = first == 0xF4 && second >= 0x90;
  return is_overlong || is_too_high ? 0 : 4;
}

}  // namespace detail

inline bool is_utf8(Bytes text) {
  constexpr std::uint64_t kHighBits = 0x8080'8080'8080'8080U;
  const std::uint8_t* at = text.data;
  std::size_t left = text.size;
  while (left > 0) {
    if (left >= 8 && (load<std::uint64_t>(at) & kHighBits) == 0) {
      at += 8;
      left -= 8;
      continue;
    }
    const std::size_t size = *at < 0x80 ? 1 : detail::utf8_character(at, left);
    if (size == 0) return false;
    at += size;
    left -= size;
  }
  return true;
}

}  // namespace otel_straggler
