// What the number points of one resource say, by sender: heartbeats in the making. The same as
// otel_straggler/otlp/decode_metrics.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "otel_straggler/metric_columns.hpp"

namespace otel_straggler {

// Whether a number is one that makes sense: finite, and 0 to `largest`.
inline bool is_sensible(const NumberValue& value, double largest) {
  if (value.kind == NumberValue::Kind::kNothing || !(largest >= 0.0)) return false;
  if (value.kind == NumberValue::Kind::kDouble) return value.real >= 0.0 && value.real <= largest;
  const bool is_any = largest >= 0x1p63;  // no integer is larger
  return value.integer >= 0 && (is_any || value.integer <= static_cast<std::int64_t>(largest));
}

// One sender of one resource.
struct Reading {
  std::string who;   // as described by its first point, as a message Resource
  std::string info;  // attributes that describe it, likewise
  Beat beat;         // its source is that of its points

  bool is_empty() const {
    const auto is_reported = [](const NumberValue& one) {
      return one.kind != NumberValue::Kind::kNothing;
    };
    const auto has_any = [](const Counts& one) { return !one.empty(); };
    return info.empty() &&
           std::none_of(beat.numbers.begin(), beat.numbers.end(), is_reported) &&
           std::none_of(beat.counts.begin(), beat.counts.end(), has_any);
  }

  // Once as many names are known as are kept, nothing changes any more.
  void count(std::size_t slot, std::int32_t name, const NumberValue& value, std::size_t max_count) {
    Counts& counts = beat.counts[slot];
    if (counts.size() >= max_count) return;
    const std::int64_t count = value.kind == NumberValue::Kind::kInt
                                   ? value.integer
                                   : static_cast<std::int64_t>(value.real);
    const auto is_it = [name](const auto& one) { return one.first == name; };
    const auto known = std::find_if(counts.begin(), counts.end(), is_it);
    if (known == counts.end()) {
      counts.emplace_back(name, count);
    } else {
      known->second = count;
    }
  }
};

}  // namespace otel_straggler
