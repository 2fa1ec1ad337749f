// The message Metric around data points, read from bytes that metric_messages.hpp has checked.
#pragma once

#include "otel_straggler/protobuf.hpp"

namespace otel_straggler {

enum class DataKind : std::uint8_t { kNone, kGauge, kSum, kHistogram, kExponential, kSummary };

enum class Temporality : std::uint8_t { kOther, kDelta, kCumulative };

struct MetricData {
  DataKind kind = DataKind::kNone;
  Bytes data;
  Bytes name;
  Bytes unit;

  bool has_numbers() const { return kind == DataKind::kGauge || kind == DataKind::kSum; }
  bool has_times() const {
    return kind == DataKind::kHistogram || kind == DataKind::kExponential;
  }
};

namespace detail {

inline DataKind data_kind(std::uint32_t field) {
  switch (field) {
    case 5: return DataKind::kGauge;
    case 7: return DataKind::kSum;
    case 9: return DataKind::kHistogram;
    case 10: return DataKind::kExponential;
    case 11: return DataKind::kSummary;
    default: return DataKind::kNone;
  }
}

}  // namespace detail

// False if its data come twice: a full parser knows which of them count.
inline bool read_metric(Bytes message, MetricData& metric) {
  Field field;
  FieldReader reader(message);
  while (reader.next(field)) {
    if (field.type != WireType::kLength) continue;
    const DataKind kind = detail::data_kind(field.number);
    if (field.number == 1) metric.name = field.content;
    if (field.number == 3) metric.unit = field.content;
    if (kind == DataKind::kNone) continue;
    if (metric.kind != DataKind::kNone) return false;
    metric.kind = kind;
    metric.data = field.content;
  }
  return true;
}

inline std::uint64_t points_in(Bytes data) {
  std::uint64_t points = 0;
  Field field;
  FieldReader reader(data);
  while (reader.next(field)) points += field.is(1, WireType::kLength);
  return points;
}

inline Temporality temporality_of(Bytes data) {
  std::uint32_t temporality = 0;
  Field field;
  FieldReader reader(data);
  while (reader.next(field)) {
    if (field.is(2, WireType::kVarint)) temporality = static_cast<std::uint32_t>(field.value);
  }
  return temporality == 1   ? Temporality::kDelta
         : temporality == 2 ? Temporality::kCumulative
                            : Temporality::kOther;
}

}  // namespace otel_straggler
