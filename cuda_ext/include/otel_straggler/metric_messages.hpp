// Whether bytes are a message of OTLP metrics, all the way down: as protobuf demands it of every
// message, whether it is read or not.
#pragma once

#include <array>

#include "otel_straggler/any_value.hpp"

namespace otel_straggler {

enum class MetricMessage : std::uint8_t {
  kScopeMetrics,
  kScope,
  kMetric,
  kNumbers,  // Gauge and Sum
  kNumberPoint,
  kHistogram,
  kHistogramPoint,
  kExponential,
  kExponentialPoint,
  kBuckets,
  kSummary,
  kSummaryPoint,
  kQuantile,
  kExemplar,
};

namespace detail {

// Fields that have a length; in all others nothing can be wrong.
struct CheckedField {
  enum class Holds : std::uint8_t { kAnything, kText, kPair, kFixed64s, kVarints, kMessage };

  std::uint32_t number = 0;
  Holds holds = Holds::kAnything;
  MetricMessage message = MetricMessage::kQuantile;
};

using CheckedFields = std::array<CheckedField, 9>;

constexpr CheckedField text_in(std::uint32_t number) {
  return {number, CheckedField::Holds::kText, {}};
}
constexpr CheckedField pair_in(std::uint32_t number) {
  return {number, CheckedField::Holds::kPair, {}};
}
constexpr CheckedField fixed64s_in(std::uint32_t number) {
  return {number, CheckedField::Holds::kFixed64s, {}};
}
constexpr CheckedField varints_in(std::uint32_t number) {
  return {number, CheckedField::Holds::kVarints, {}};
}
constexpr CheckedField message_in(std::uint32_t number, MetricMessage message) {
  return {number, CheckedField::Holds::kMessage, message};
}

// In the order of MetricMessage.
inline constexpr std::array<CheckedFields, 14> kCheckedFields{{
    {{message_in(1, MetricMessage::kScope), message_in(2, MetricMessage::kMetric), text_in(3)}},
    {{text_in(1), text_in(2), pair_in(3)}},
    {{text_in(1), text_in(2), text_in(3), message_in(5, MetricMessage::kNumbers),
      message_in(7, MetricMessage::kNumbers), message_in(9, MetricMessage::kHistogram),
      message_in(10, MetricMessage::kExponential), message_in(11, MetricMessage::kSummary),
      pair_in(12)}},
    {{message_in(1, MetricMessage::kNumberPoint)}},
    {{pair_in(7), message_in(5, MetricMessage::kExemplar)}},
    {{message_in(1, MetricMessage::kHistogramPoint)}},
    {{pair_in(9), fixed64s_in(6), fixed64s_in(7), message_in(8, MetricMessage::kExemplar)}},
    {{message_in(1, MetricMessage::kExponentialPoint)}},
    {{pair_in(1), message_in(8, MetricMessage::kBuckets), message_in(9, MetricMessage::kBuckets),
      message_in(11, MetricMessage::kExemplar)}},
    {{varints_in(2)}},
    {{message_in(1, MetricMessage::kSummaryPoint)}},
    {{pair_in(7), message_in(6, MetricMessage::kQuantile)}},
    {{}},
    {{pair_in(7)}},
}};

}  // namespace detail

// False if it is none, or if a full parser should say whether it is.
inline bool is_message(Bytes bytes, MetricMessage message);

namespace detail {

inline bool are_varints(Bytes bytes) {
  int size = 0;  // of the one that is read
  for (std::size_t i = 0; i < bytes.size; ++i) {
    const std::uint8_t byte = bytes.data[i];
    if (++size == kLongestVarint && byte > 1) return false;
    if (byte < 0x80) size = 0;
  }
  return size == 0;
}

inline bool holds(const CheckedField& field, Bytes content) {
  switch (field.holds) {
    case CheckedField::Holds::kText: return is_utf8(content);
    case CheckedField::Holds::kPair: return is_pair(content, kMaxDepth);
    case CheckedField::Holds::kFixed64s: return content.size % 8 == 0;
    case CheckedField::Holds::kVarints: return are_varints(content);
    case CheckedField::Holds::kMessage: return is_message(content, field.message);
    default: return true;
  }
}

}  // namespace detail

inline bool is_message(Bytes bytes, MetricMessage message) {
  const detail::CheckedFields& checked = detail::kCheckedFields[static_cast<std::size_t>(message)];
  Field field;
  FieldReader reader(bytes);
  while (reader.next(field)) {
    if (field.type != WireType::kLength) continue;
    for (const detail::CheckedField& one : checked) {
      if (one.number == 0) break;
      if (one.number != field.number) continue;
      if (!detail::holds(one, field.content)) return false;
      break;
    }
  }
  return !reader.is_malformed();
}

}  // namespace otel_straggler
