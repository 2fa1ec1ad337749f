// Data points of OTLP metrics, read from bytes that metric_messages.hpp has checked.
#pragma once

#include <optional>
#include <vector>

#include "otel_straggler/point_attributes.hpp"

namespace otel_straggler {

inline constexpr std::size_t kMaxBuckets = 4'096;

// A NumberDataPoint: its attributes are added, its value is returned.
inline NumberValue read_number_point(Bytes point, PointAttributes& attributes) {
  NumberValue value;
  Field field;
  FieldReader reader(point);
  while (reader.next(field)) {
    if (field.is(7, WireType::kLength)) {
      attributes.add(field.content);
    } else if (field.is(4, WireType::kFixed64)) {
      value = {NumberValue::Kind::kDouble, 0, load<double>(field.content.data)};
    } else if (field.is(6, WireType::kFixed64)) {
      value = {NumberValue::Kind::kInt, load<std::int64_t>(field.content.data), 0.0};
    }
  }
  return value;
}

// Counts or bounds of buckets: no more than can be of use are kept, but all are counted.
template <typename Number>
class Buckets {
 public:
  void add(Number number) {
    has_any_ |= number != 0;
    if (numbers_.size() <= kMaxBuckets) numbers_.push_back(number);
  }

  // Of a packed field.
  void add_fixed64s(Bytes content) {
    for (std::size_t at = 0; at + 8 <= content.size; at += 8) add(load<Number>(content.data + at));
  }

  bool has_any() const { return has_any_; }  // that is not 0
  bool are_too_many() const { return numbers_.size() > kMaxBuckets; }
  std::vector<Number>& numbers() { return numbers_; }

 private:
  std::vector<Number> numbers_;
  bool has_any_ = false;
};

// A HistogramDataPoint or an ExponentialHistogramDataPoint.
struct HistogramPoint {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t count = 0;
  std::uint32_t flags = 0;
  std::optional<double> sum, min, max;
  Buckets<std::uint64_t> counts;
  Buckets<double> bounds;
  bool has_negative = false;
  std::uint64_t zero = 0;
  double zero_bound = 0.0;
  std::int32_t scale = 0;
  std::int32_t first = 0;
};

namespace detail {

inline std::int32_t zigzag(std::uint64_t value) {
  const auto bits = static_cast<std::uint32_t>(value);
  return static_cast<std::int32_t>((bits >> 1) ^ (0U - (bits & 1U)));
}

inline double real_of(const Field& field) { return load<double>(field.content.data); }

// Of a message Buckets, or a part of one.
inline void read_buckets(Bytes message, Buckets<std::uint64_t>& counts, std::int32_t& first) {
  Field field;
  FieldReader reader(message);
  while (reader.next(field)) {
    if (field.is(1, WireType::kVarint)) {
      first = zigzag(field.value);
    } else if (field.is(2, WireType::kVarint)) {
      counts.add(field.value);
    } else if (field.is(2, WireType::kLength)) {
      std::uint64_t value = 0;
      int shift = 0;
      for (std::size_t i = 0; i < field.content.size; ++i) {
        const std::uint8_t byte = field.content.data[i];
        value |= std::uint64_t{byte & 0x7FU} << shift;
        shift += 7;
        if (byte >= 0x80) continue;
        counts.add(value);
        value = 0;
        shift = 0;
      }
    }
  }
}

}  // namespace detail

inline HistogramPoint read_histogram_point(Bytes message, PointAttributes& attributes) {
  HistogramPoint point;
  Field field;
  FieldReader reader(message);
  while (reader.next(field)) {
    const bool is_fixed = field.type == WireType::kFixed64;
    const bool has_length = field.type == WireType::kLength;
    switch (field.number) {
      case 2: if (is_fixed) point.start_ns = field.value; break;
      case 3: if (is_fixed) point.end_ns = field.value; break;
      case 4: if (is_fixed) point.count = field.value; break;
      case 5: if (is_fixed) point.sum = detail::real_of(field); break;
      case 6:
        if (is_fixed) point.counts.add(field.value);
        if (has_length) point.counts.add_fixed64s(field.content);
        break;
      case 7:
        if (is_fixed) point.bounds.add(detail::real_of(field));
        if (has_length) point.bounds.add_fixed64s(field.content);
        break;
      case 9: if (has_length) attributes.add(field.content); break;
      case 10:
        if (field.type == WireType::kVarint) point.flags = static_cast<std::uint32_t>(field.value);
        break;
      case 11: if (is_fixed) point.min = detail::real_of(field); break;
      case 12: if (is_fixed) point.max = detail::real_of(field); break;
      default: break;
    }
  }
  return point;
}

inline HistogramPoint read_exponential_point(Bytes message, PointAttributes& attributes) {
  HistogramPoint point;
  Buckets<std::uint64_t> negative;
  std::int32_t first_negative = 0;
  Field field;
  FieldReader reader(message);
  while (reader.next(field)) {
    const bool is_fixed = field.type == WireType::kFixed64;
    const bool is_varint = field.type == WireType::kVarint;
    const bool has_length = field.type == WireType::kLength;
    switch (field.number) {
      case 1: if (has_length) attributes.add(field.content); break;
      case 2: if (is_fixed) point.start_ns = field.value; break;
      case 3: if (is_fixed) point.end_ns = field.value; break;
      case 4: if (is_fixed) point.count = field.value; break;
      case 5: if (is_fixed) point.sum = detail::real_of(field); break;
      case 6: if (is_varint) point.scale = detail::zigzag(field.value); break;
      case 7: if (is_fixed) point.zero = field.value; break;
      case 8:
        if (has_length) detail::read_buckets(field.content, point.counts, point.first);
        break;
      case 9:
        if (has_length) detail::read_buckets(field.content, negative, first_negative);
        break;
      case 10: if (is_varint) point.flags = static_cast<std::uint32_t>(field.value); break;
      case 12: if (is_fixed) point.min = detail::real_of(field); break;
      case 13: if (is_fixed) point.max = detail::real_of(field); break;
      case 14: if (is_fixed) point.zero_bound = detail::real_of(field); break;
      default: break;
    }
  }
  point.has_negative = negative.has_any();
  return point;
}

}  // namespace otel_straggler
