// One span's bytes -> what its row and its judgement rest on.
//
// Which attributes mean something, and what, is not known here: `KeyTable` says which are numbers
// that differ from span to span, which say who sent the span, and which else matter. All that
// matters but ids, times and those numbers becomes two strings of bytes. Spans with the same string
// are scored alike, so the rules need to see one of them.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "otel_straggler/any_value.hpp"

namespace otel_straggler {

enum class KeyRole : std::uint8_t {
  kNumber = 0,   // its value belongs to the row
  kWho = 1,      // it says who sent the span
  kShape = 2,    // it says what the span is
  kSection = 3,  // like kShape; where it is text, the name of the span says nothing
  kForeign = 4,  // a request with such a span is for a full parser
};

struct Key {
  std::string text;
  KeyRole role;
  std::uint8_t slot;  // of a number: where its value is kept
};

inline constexpr std::size_t kMaxNumbers = 64;
inline constexpr std::size_t kMaxKeys = 4096;

// The keys that mean something; at most kMaxKeys.
class KeyTable {
 public:
  explicit KeyTable(std::vector<Key> keys) : keys_(std::move(keys)) {
    std::size_t places = 64;
    while (places < keys_.size() * 4) places *= 2;
    places_.assign(places, kNone);
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      std::size_t place = place_of(bytes_of(keys_[i]));
      while (places_[place] != kNone) place = (place + 1) & (places - 1);
      places_[place] = static_cast<std::uint16_t>(i);
    }
  }

  // The key and its number; null if it means nothing.
  const Key* find(Bytes text, std::uint16_t& number) const {
    std::size_t place = place_of(text);
    for (; places_[place] != kNone; place = (place + 1) & (places_.size() - 1)) {
      number = places_[place];
      if (bytes_of(keys_[number]) == text) return &keys_[number];
    }
    return nullptr;
  }

 private:
  static constexpr std::uint16_t kNone = UINT16_MAX;

  static Bytes bytes_of(const Key& key) {
    return {reinterpret_cast<const std::uint8_t*>(key.text.data()), key.text.size()};
  }

  std::size_t place_of(Bytes text) const {
    std::uint64_t mixed = text.size;
    if (text.size >= 8) {
      mixed ^= load<std::uint64_t>(text.data) ^ load<std::uint64_t>(text.end() - 8) * 31;
    } else {
      for (std::size_t i = 0; i < text.size; ++i) mixed = mixed * 31 + text.data[i];
    }
    return ((mixed * 0x9E37'79B9'7F4A'7C15U) >> 40) & (places_.size() - 1);
  }

  std::vector<Key> keys_;
  std::vector<std::uint16_t> places_;
};

struct Number {
  bool is_integer = false;  // exactly, within 64 bits
  std::int64_t integer = 0;
  double real = 0.0;
};

struct SpanFacts {
  Bytes trace_id;
  Bytes span_id;
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::string shape;  // what it is
  std::string who;    // who sent it; empty: as the resource says
  std::array<Number, kMaxNumbers> numbers;
  std::size_t numbers_reported = 0;  // by attributes; one that comes twice counts twice
};

inline Number number_of(const Value& value) {
  if (value.kind == ValueKind::kInt) {
    const auto integer = static_cast<std::int64_t>(value.bits);
    return {true, integer, static_cast<double>(integer)};
  }
  double real;
  std::memcpy(&real, &value.bits, sizeof real);
  const bool is_integer = real >= -0x1p63 && real < 0x1p63 && std::trunc(real) == real;
  return {is_integer, is_integer ? static_cast<std::int64_t>(real) : 0, real};
}

class SpanReader {
 public:
  explicit SpanReader(const KeyTable& keys) : keys_(keys) {}

  // False if it is no span, or if a full parser should say whether it is.
  bool read(Bytes span, SpanFacts& facts) const {
    facts.trace_id = facts.span_id = {};
    facts.start_ns = facts.end_ns = facts.numbers_reported = 0;
    facts.shape.clear();
    facts.who.clear();
    Bytes name;
    std::uint32_t status = 0;
    bool names_section = false;
    Field field;
    FieldReader reader(span);
    while (reader.next(field)) {
      switch (field.number) {
        case 1:
          if (field.type == WireType::kLength) facts.trace_id = field.content;
          break;
        case 2:
          if (field.type == WireType::kLength) facts.span_id = field.content;
          break;
        case 3:
          if (field.type == WireType::kLength && !is_utf8(field.content)) return false;
          break;
        case 5:
          if (field.type != WireType::kLength) break;
          if (!is_utf8(field.content)) return false;
          name = field.content;
          break;
        case 7:
          if (field.type == WireType::kFixed64) facts.start_ns = field.value;
          break;
        case 8:
          if (field.type == WireType::kFixed64) facts.end_ns = field.value;
          break;
        case 9:
          if (field.type != WireType::kLength) break;
          if (!read_attribute(field.content, facts, names_section)) return false;
          break;
        case 11:
          if (field.type == WireType::kLength && !is_event(field.content)) return false;
          break;
        case 13:
          if (field.type == WireType::kLength && !is_link(field.content)) return false;
          break;
        case 15:
          if (field.type == WireType::kLength && !read_status(field.content, status)) return false;
          break;
        default:
          break;
      }
    }
    if (reader.is_malformed()) return false;
    constexpr char kEndOfKeys[] = {'\xFF', '\xFF'};  // no key has this number
    facts.shape.append(kEndOfKeys, sizeof kEndOfKeys);
    facts.shape.push_back(status == kStatusError ? '\1' : '\0');
    if (!names_section) append(facts.shape, name);
    return true;
  }

 private:
  static constexpr std::uint32_t kStatusError = 2;

  bool read_attribute(Bytes pair, SpanFacts& facts, bool& names_section) const {
    Bytes key_text;
    Value value;
    if (!read_pair(pair, key_text, value)) return false;
    std::uint16_t number = 0;
    const Key* key = keys_.find(key_text, number);
    if (key == nullptr) return is_utf8(key_text);
    if (key->role == KeyRole::kForeign) return false;
    const bool is_number = value.kind == ValueKind::kInt || value.kind == ValueKind::kDouble;
    std::string& to = key->role == KeyRole::kWho ? facts.who : facts.shape;
    to.append(reinterpret_cast<const char*>(&number), sizeof number);
    to.push_back(static_cast<char>(value.kind));
    if (key->role == KeyRole::kNumber && is_number) {
      facts.numbers[key->slot] = number_of(value);
      ++facts.numbers_reported;
    } else if (value.kind == ValueKind::kText) {
      append(to, value.text);
    } else {
      to.append(reinterpret_cast<const char*>(&value.bits), sizeof value.bits);
    }
    if (key->role == KeyRole::kSection) {  // the last of a key counts
      names_section = value.kind == ValueKind::kText && value.text.size > 0;
    }
    return true;
  }

  static void append(std::string& to, Bytes text) {
    const auto size = static_cast<std::uint32_t>(text.size);  // a request has less than 4 GiB
    to.append(reinterpret_cast<const char*>(&size), sizeof size);
    if (size > 0) to.append(reinterpret_cast<const char*>(text.data), text.size);
  }

  static bool is_event(Bytes event) {
    return has_text(event, 2) && are_pairs(event, 3, kMaxDepth);
  }

  static bool is_link(Bytes link) { return has_text(link, 3) && are_pairs(link, 4, kMaxDepth); }

  // Whether the fields of this number are UTF-8.
  static bool has_text(Bytes message, std::uint32_t number) {
    Field field;
    FieldReader reader(message);
    while (reader.next(field)) {
      if (field.is(number, WireType::kLength) && !is_utf8(field.content)) return false;
    }
    return true;
  }

  static bool read_status(Bytes message, std::uint32_t& code) {
    Field field;
    FieldReader reader(message);
    while (reader.next(field)) {
      if (field.is(2, WireType::kLength) && !is_utf8(field.content)) return false;
      if (field.is(3, WireType::kVarint)) code = static_cast<std::uint32_t>(field.value);
    }
    return !reader.is_malformed();
  }

  const KeyTable& keys_;
};

}  // namespace otel_straggler
