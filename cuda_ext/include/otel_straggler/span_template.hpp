// Spans that are like one before, read without being parsed.
//
// Senders repeat themselves: most spans differ from an earlier one in ids, times and a few numbers
// only. A template is such a span, cut where those stand. Another span that has the same bytes
// between the cuts, and at the cuts what belongs there, has the same fields; no byte of it is left
// unseen.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "otel_straggler/span_facts.hpp"

namespace otel_straggler {

inline constexpr std::size_t kLongestTemplate = 4096;  // bytes of a span

class SpanTemplate {
 public:
  // Of a span that SpanReader takes; `who` is how it describes its sender.
  SpanTemplate(Bytes span, const KeyTable& keys, std::string who, std::uint32_t shape)
      : who_(std::move(who)), shape_(shape) {
    const std::uint8_t* from = span.data;
    Field field;
    FieldReader reader(span);
    while (reader.next(field)) {
      if (field.type == WireType::kVarint) continue;
      const Cut cut = cut_at(field, keys);
      if (cut.what == What::kNothing) continue;
      const Bytes same{from, static_cast<std::size_t>(cut.at - from)};
      from = cut.at + cut.size;
      add(same, cut);
    }
    add({from, static_cast<std::size_t>(span.end() - from)}, {});
  }

  std::uint32_t shape() const { return shape_; }

  // Numbers that it reads; what SpanReader finds beyond them is encoded in some unusual way.
  std::size_t numbers() const { return numbers_; }

  // Whether `span` is alike. All facts but its shape, which has a number already, go into `facts`;
  // where it is not, they are of no use.
  bool read(Bytes span, SpanFacts& facts) const {
    const std::uint8_t* at = span.data;
    const std::uint8_t* same = bytes_of(same_);
    for (const Part& part : parts_) {
      const auto left = static_cast<std::size_t>(span.end() - at);
      if (left < std::size_t{part.same} + part.min_size) return false;
      if (!is_equal(at, same, part.same)) return false;
      at += part.same;
      same += part.same;
      switch (part.what) {
        case What::kTraceId: facts.trace_id = {at, 16}; break;
        case What::kSpanId: facts.span_id = {at, 8}; break;
        case What::kStart: facts.start_ns = load<std::uint64_t>(at); break;
        case What::kEnd: facts.end_ns = load<std::uint64_t>(at); break;
        case What::kDouble:
          if (part.slot < kMaxNumbers) {
            facts.numbers[part.slot] = number_of({ValueKind::kDouble, load<std::uint64_t>(at), {}});
          }
          break;
        case What::kInteger:
          if (!read_integer(at, span.end(), part, same, facts)) return false;
          same += part.key;
          continue;
        default: break;
      }
      at += part.min_size;
    }
    facts.who = who_;
    return at == span.end();
  }

 private:
  enum class What : std::uint8_t {
    kNothing, kTraceId, kSpanId, kParentId, kStart, kEnd, kDouble, kInteger
  };

  static constexpr std::uint8_t kNoSlot = kMaxNumbers;

  struct Cut {
    What what = What::kNothing;
    std::uint8_t slot = kNoSlot;
    const std::uint8_t* at = nullptr;
    std::size_t size = 0;
    Bytes key;  // of an integer: the bytes between the length of the pair and that of the value
  };

  // Bytes that are the same, then something that differs.
  struct Part {
    std::uint16_t same;
    std::uint16_t min_size;  // bytes of what differs; of an integer the fewest
    What what;
    std::uint8_t slot;
    std::uint8_t key;
  };

  static const std::uint8_t* bytes_of(const std::string& text) {
    return reinterpret_cast<const std::uint8_t*>(text.data());
  }

  static bool is_equal(const std::uint8_t* a, const std::uint8_t* b, std::size_t size) {
    if (size >= 8) {
      for (std::size_t i = 0; i + 8 < size; i += 8) {
        if (load<std::uint64_t>(a + i) != load<std::uint64_t>(b + i)) return false;
      }
      return load<std::uint64_t>(a + size - 8) == load<std::uint64_t>(b + size - 8);
    }
    for (std::size_t i = 0; i < size; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }

  static Cut cut_at(const Field& field, const KeyTable& keys) {
    const auto cut = [&field](What what) {
      return Cut{what, kNoSlot, field.content.data, field.content.size, {}};
    };
    if (field.type == WireType::kFixed64) {
      if (field.number == 7) return cut(What::kStart);
      if (field.number == 8) return cut(What::kEnd);
    } else if (field.type == WireType::kLength) {
      if (field.number == 1 && field.content.size == 16) return cut(What::kTraceId);
      if (field.number == 2 && field.content.size == 8) return cut(What::kSpanId);
      if (field.number == 4 && field.content.size == 8) return cut(What::kParentId);
      if (field.number == 9) return cut_number(field.content, keys);
    }
    return {};
  }

  // Of an attribute whose number may differ, encoded as exporters do:
  //   4a size  0a size key  12 size  18 varint   or   21 double
  static Cut cut_number(Bytes pair, const KeyTable& keys) {
    constexpr std::size_t kMax = 0x7F;
    if (pair.size < 7 || pair.size > kMax || pair.data[-1] != pair.size || pair.data[0] != 0x0A) {
      return {};
    }
    const std::size_t key_size = pair.data[1];
    const std::size_t value_at = 2 + key_size;  // tag and size of the value, then its content
    if (value_at + 4 > pair.size || pair.data[value_at] != 0x12) return {};
    const std::size_t value_size = pair.data[value_at + 1];
    if (value_at + 2 + value_size != pair.size) return {};
    std::uint16_t number = 0;
    const Key* key = keys.find({pair.data + 2, key_size}, number);
    if (key != nullptr && key->role != KeyRole::kNumber) return {};
    const std::uint8_t slot = key == nullptr ? kNoSlot : key->slot;
    const std::uint8_t* content = pair.data + value_at + 2;
    if (content[0] == 0x21 && value_size == 9) return {What::kDouble, slot, content + 1, 8, {}};
    std::uint64_t value = 0;
    if (content[0] != 0x18 || !read_varint({content + 1, value_size - 1}, value)) return {};
    return {What::kInteger, slot, pair.data - 1, pair.size + 1, {pair.data, value_at + 1}};
  }

  // A varint that has exactly these bytes.
  static bool read_varint(Bytes bytes, std::uint64_t& value) {
    if (bytes.size == 0 || bytes.size > kLongestVarint) return false;
    const std::size_t last = bytes.size - 1;
    value = 0;
    for (std::size_t i = 0; i < last; ++i) {
      if (bytes.data[i] < 0x80) return false;
      value |= std::uint64_t{bytes.data[i] & 0x7FU} << (7 * i);
    }
    if (bytes.data[last] >= (last + 1 == kLongestVarint ? 2 : 0x80)) return false;
    value |= std::uint64_t{bytes.data[last]} << (7 * last);
    return true;
  }

  // Reads an attribute from the size of its pair on; part.least bytes are there.
  static bool read_integer(const std::uint8_t*& at, const std::uint8_t* end, const Part& part,
                           const std::uint8_t* key, SpanFacts& facts) {
    const std::size_t pair_size = *at;
    const std::uint8_t* pair = at + 1;
    const std::size_t value_size = pair[part.key];
    const std::uint8_t* value = pair + part.key + 1;
    if (value_size < 2 || static_cast<std::size_t>(end - value) < value_size) return false;
    if (pair_size != part.key + 1U + value_size || pair_size > 0x7F) return false;
    if (value[0] != 0x18 || !is_equal(pair, key, part.key)) return false;
    std::uint64_t bits = 0;
    if (!read_varint({value + 1, value_size - 1}, bits)) return false;
    if (part.slot < kMaxNumbers) {
      facts.numbers[part.slot] = number_of({ValueKind::kInt, bits, {}});
    }
    at = value + value_size;
    return true;
  }

  void add(Bytes same, const Cut& cut) {
    append(same);
    append(cut.key);
    numbers_ += cut.slot != kNoSlot;
    const bool is_integer = cut.what == What::kInteger;
    const std::size_t min_size = is_integer ? 1 + cut.key.size + 3 : cut.size;
    parts_.push_back({static_cast<std::uint16_t>(same.size), static_cast<std::uint16_t>(min_size),
                      cut.what, cut.slot, static_cast<std::uint8_t>(cut.key.size)});
  }

  void append(Bytes bytes) {
    if (bytes.size > 0) same_.append(reinterpret_cast<const char*>(bytes.data), bytes.size);
  }

  std::string who_;
  std::uint32_t shape_;
  std::size_t numbers_ = 0;
  std::string same_;
  std::vector<Part> parts_;
};

// The templates of one scanner, and which is likely to be next: sections of a step follow one
// another as they did in the step before.
class Templates {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // The shape of a span that is like one before; kNone if it is not, or is not the one expected.
  std::uint32_t read(Bytes span, SpanFacts& facts, bool is_own) {
    Two& expected = follow_[last_];
    for (std::uint32_t& next : expected) {
      if (next == kNone || is_own_[next] != is_own || !templates_[next].read(span, facts)) continue;
      const std::uint32_t found = next;
      std::swap(expected[0], next);
      last_ = found + 1;
      return templates_[found].shape();
    }
    return kNone;
  }

  // Take a span that read() did not know.
  void learn(Bytes span, SpanFacts& facts, const KeyTable& keys, std::uint32_t shape, bool is_own) {
    if (span.size > kLongestTemplate) return;
    const std::size_t numbers = facts.numbers_reported;
    std::string who = facts.who;
    if (shape >= of_shape_.size()) of_shape_.resize(shape + 1, {kNone, kNone, kNone, kNone});
    std::uint32_t found = kNone;
    for (const std::uint32_t one : of_shape_[shape]) {
      if (one != kNone && templates_[one].read(span, facts)) found = one;
    }
    if (found == kNone) {
      SpanTemplate fresh(span, keys, std::move(who), shape);
      if (fresh.numbers() == numbers) found = add(std::move(fresh), is_own);
    }
    if (found == kNone) return;
    Two& expected = follow_[last_];
    expected[1] = expected[0];
    expected[0] = found;
    last_ = found + 1;
  }

 private:
  static constexpr std::size_t kMax = 4096;
  using Few = std::array<std::uint32_t, 4>;
  using Two = std::array<std::uint32_t, 2>;

  std::uint32_t add(SpanTemplate&& fresh, bool is_own) {
    for (std::uint32_t& place : of_shape_[fresh.shape()]) {
      if (place != kNone || templates_.size() >= kMax) continue;
      place = static_cast<std::uint32_t>(templates_.size());
      templates_.push_back(std::move(fresh));
      follow_.push_back({kNone, kNone});
      is_own_.push_back(is_own);
      return place;
    }
    return kNone;
  }

  std::vector<SpanTemplate> templates_;
  std::vector<char> is_own_;
  std::vector<Few> of_shape_;
  std::vector<Two> follow_{{kNone, kNone}};  // one more: what follows on nothing
  std::uint32_t last_ = 0;                   // place in follow_
};

}  // namespace otel_straggler
