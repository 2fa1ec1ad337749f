// Reads protobuf messages field by field, never past their end.
//
// What it takes is what every protobuf parser takes. Where they differ (a tag padded to more than
// five bytes, groups in groups without end) it says "malformed", and the caller asks one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace otel_straggler {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fixed32 and fixed64 are copied");

inline constexpr int kMaxDepth = 32;  // of messages and groups in one another
inline constexpr int kLongestVarint = 10;

struct Bytes {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;

  const std::uint8_t* end() const { return data + size; }
};

inline bool operator==(Bytes a, Bytes b) {
  return a.size == b.size && (a.size == 0 || std::memcmp(a.data, b.data, a.size) == 0);
}

inline Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

inline std::string text_of(Bytes bytes) {
  if (bytes.size == 0) return {};
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

template <typename Number>
inline Number load(const std::uint8_t* at) {
  Number number;
  std::memcpy(&number, at, sizeof number);
  return number;
}

enum class WireType : std::uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kLength = 2,
  kGroup = 3,
  kGroupEnd = 4,
  kFixed32 = 5,
};

// One field: `value` of a number, `content` of all but varints.
struct Field {
  std::uint32_t number = 0;
  WireType type = WireType::kVarint;
  std::uint64_t value = 0;
  Bytes content;

  bool is(std::uint32_t wanted, WireType wanted_type) const {
    return number == wanted && type == wanted_type;
  }
};

class FieldReader {
 public:
  explicit FieldReader(Bytes message) : at_(message.data), end_(message.end()) {}

  // The next field that is no group; groups are skipped. False at the end, and where the message
  // is malformed.
  bool next(Field& field) {
    while (at_ != end_) {
      if (!read_tag(field)) return fail();
      switch (field.type) {
        case WireType::kLength:
          return read_content(field) || fail();
        case WireType::kVarint:
          return read_varint(field.value) || fail();
        case WireType::kFixed64:
          return read_fixed<std::uint64_t>(field) || fail();
        case WireType::kFixed32:
          return read_fixed<std::uint32_t>(field) || fail();
        case WireType::kGroup:
          if (!skip_group(field.number, kMaxDepth)) return fail();
          break;
        default:
          return fail();
      }
    }
    return false;
  }

  bool is_malformed() const { return is_malformed_; }

 private:
  bool fail() {
    is_malformed_ = true;
    at_ = end_;
    return false;
  }

  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  bool read_tag(Field& field) {
    std::uint64_t tag = 0;
    if (!read_varint(tag, 5) || tag > UINT32_MAX || tag < 8) return false;
    field.number = static_cast<std::uint32_t>(tag >> 3);
    field.type = static_cast<WireType>(tag & 7);
    return true;
  }

  bool read_varint(std::uint64_t& value, int longest = kLongestVarint) {
    if (at_ != end_ && *at_ < 0x80) {
      value = *at_++;
      return true;
    }
    value = 0;
    for (int i = 0; i < longest && at_ != end_; ++i) {
      const std::uint64_t byte = *at_++;
      if (i == kLongestVarint - 1 && byte > 1) return false;
      value |= (byte & 0x7F) << (7 * i);
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool read_content(Field& field) {
    std::uint64_t size = 0;
    if (!read_varint(size, 5) || size > left()) return false;
    field.content = {at_, static_cast<std::size_t>(size)};
    at_ += size;
    return true;
  }

  template <typename Number>
  bool read_fixed(Field& field) {
    if (left() < sizeof(Number)) return false;
    field.value = load<Number>(at_);
    field.content = {at_, sizeof(Number)};
    at_ += sizeof(Number);
    return true;
  }

  bool skip_group(std::uint32_t number, int depth) {
    Field field;
    while (depth > 0 && read_tag(field)) {
      bool is_read = true;
      switch (field.type) {
        case WireType::kLength: is_read = read_content(field); break;
        case WireType::kVarint: is_read = read_varint(field.value); break;
        case WireType::kFixed64: is_read = read_fixed<std::uint64_t>(field); break;
        case WireType::kFixed32: is_read = read_fixed<std::uint32_t>(field); break;
        case WireType::kGroup: is_read = skip_group(field.number, depth - 1); break;
        case WireType::kGroupEnd: return field.number == number;
        default: return false;
      }
      if (!is_read) return false;
    }
    return false;
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool is_malformed_ = false;
};

// Whether it is a message of some type, as far as its own fields go.
inline bool is_well_formed(Bytes message) {
  Field field;
  FieldReader reader(message);
  while (reader.next(field)) continue;
  return !reader.is_malformed();
}

}  // namespace otel_straggler
