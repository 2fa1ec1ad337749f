// The messages KeyValue and AnyValue: attributes of everything in OTLP.
#pragma once

#include "otel_straggler/protobuf.hpp"
#include "otel_straggler/utf8.hpp"

namespace otel_straggler {

enum class ValueKind : std::uint8_t { kNothing, kText, kBool, kInt, kDouble, kOther };

// An AnyValue; of arrays, maps and bytes only that they are there.
struct Value {
  ValueKind kind = ValueKind::kNothing;
  std::uint64_t bits = 0;
  Bytes text;
};

inline bool is_array(Bytes message, int depth);
inline bool are_pairs(Bytes message, std::uint32_t number, int depth);
inline bool is_pair(Bytes pair, int depth);
inline bool read_value(Bytes message, Value& value, int depth);

// A KeyValue. False if it is none, or if a full parser should say whether it is; whether the key is
// UTF-8 is for the caller to see.
inline bool read_pair(Bytes pair, Bytes& key, Value& value) {
  Field field;
  FieldReader reader(pair);
  while (reader.next(field)) {
    if (field.is(1, WireType::kLength)) {
      if (key.size > 0 && !is_utf8(key)) return false;  // of several the last counts
      key = field.content;
    } else if (field.is(2, WireType::kLength)) {
      if (!read_value(field.content, value, kMaxDepth)) return false;
    }
  }
  return !reader.is_malformed();
}

// Reads a message AnyValue into `value`: the last of its fields wins.
inline bool read_value(Bytes message, Value& value, int depth) {
  if (depth == 0) return false;
  Field field;
  FieldReader reader(message);
  while (reader.next(field)) {
    switch (field.number) {
      case 1:
        if (field.type != WireType::kLength) break;
        if (!is_utf8(field.content)) return false;
        value = {ValueKind::kText, 0, field.content};
        break;
      case 2:
        if (field.type == WireType::kVarint) value = {ValueKind::kBool, field.value != 0, {}};
        break;
      case 3:
        if (field.type == WireType::kVarint) value = {ValueKind::kInt, field.value, {}};
        break;
      case 4:
        if (field.type == WireType::kFixed64) value = {ValueKind::kDouble, field.value, {}};
        break;
      case 5:
        if (field.type != WireType::kLength) break;
        if (!is_array(field.content, depth - 1)) return false;
        value = {ValueKind::kOther, 0, {}};
        break;
      case 6:
        if (field.type != WireType::kLength) break;
        if (!are_pairs(field.content, 1, depth - 1)) return false;
        value = {ValueKind::kOther, 0, {}};
        break;
      case 7:
        if (field.type == WireType::kLength) value = {ValueKind::kOther, 0, {}};
        break;
      default:
        return false;  // possibly a newer kind of value, for a parser with the schema
    }
  }
  return !reader.is_malformed();
}

inline bool is_array(Bytes message, int depth) {
  Field field;
  FieldReader reader(message);
  while (reader.next(field)) {
    Value value;
    if (field.is(1, WireType::kLength) && !read_value(field.content, value, depth)) return false;
  }
  return !reader.is_malformed();
}

// Whether the fields of this number are messages KeyValue, and all else is well-formed.
inline bool are_pairs(Bytes message, std::uint32_t number, int depth) {
  Field field;
  FieldReader reader(message);
  while (reader.next(field)) {
    if (field.is(number, WireType::kLength) && !is_pair(field.content, depth)) return false;
  }
  return !reader.is_malformed();
}

inline bool is_pair(Bytes pair, int depth) {
  Field field;
  FieldReader reader(pair);
  while (reader.next(field)) {
    Value value;
    if (field.is(1, WireType::kLength) && !is_utf8(field.content)) return false;
    if (field.is(2, WireType::kLength) && !read_value(field.content, value, depth)) return false;
  }
  return !reader.is_malformed();
}

}  // namespace otel_straggler
