// Protobuf, written: tags, varints, messages. Nothing here knows OTLP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace otel_straggler::proto {

using Bytes = std::vector<std::uint8_t>;

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

inline std::size_t varint_size(std::uint64_t value) {
  std::size_t size = 1;
  for (; value > 0x7F; value >>= 7) ++size;
  return size;
}

inline void append_varint(Bytes& out, std::uint64_t value) {
  for (; value > 0x7F; value >>= 7) out.push_back(static_cast<std::uint8_t>(value | 0x80));
  out.push_back(static_cast<std::uint8_t>(value));
}

inline void append_tag(Bytes& out, std::uint32_t field, WireType type) {
  append_varint(out, field << 3 | type);
}

inline void append_bytes(Bytes& out, std::string_view bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

inline void append_text(Bytes& out, std::uint32_t field, std::string_view text) {
  append_tag(out, field, kLength);
  append_varint(out, text.size());
  append_bytes(out, text);
}

inline std::string_view view_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void append_message(Bytes& out, std::uint32_t field, const Bytes& body) {
  append_text(out, field, view_of(body));
}

// Overwrites `width` bytes; zero groups fill up what the value does not need, which is legal.
inline void put_varint(std::uint8_t* at, std::size_t width, std::uint64_t value) {
  for (std::size_t place = 0; place + 1 < width; ++place, value >>= 7) {
    at[place] = static_cast<std::uint8_t>(value | 0x80);
  }
  at[width - 1] = static_cast<std::uint8_t>(value & 0x7F);
}

inline void put_fixed64(std::uint8_t* at, std::uint64_t value) {
  for (unsigned place = 0; place < 8; ++place) {
    at[place] = static_cast<std::uint8_t>(value >> (8 * place));
  }
}

}  // namespace otel_straggler::proto
