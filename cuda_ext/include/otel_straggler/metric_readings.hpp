// What the number points of one resource say, by sender: signs of life in the making. The same as
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
inline bool is_sensible(const Told& told, double largest) {
  if (told.kind == Told::Kind::kNothing || !(largest >= 0.0)) return false;
  if (told.kind == Told::Kind::kDouble) return told.real >= 0.0 && told.real <= largest;
  const bool is_any = largest >= 0x1p63;  // no integer is larger
  return told.integer >= 0 && (is_any || told.integer <= static_cast<std::int64_t>(largest));
}

// One sender of one resource.
struct Reading {
  std::string who;   // what its first point said of it, as a message Resource
  std::string info;  // attributes that describe it, likewise
  Beat beat;         // its source is that of its points

  bool is_empty() const {
    const auto is_told = [](const Told& one) { return one.kind != Told::Kind::kNothing; };
    const auto has_any = [](const Counts& one) { return !one.empty(); };
    return info.empty() &&
           std::none_of(beat.numbers.begin(), beat.numbers.end(), is_told) &&
           std::none_of(beat.counts.begin(), beat.counts.end(), has_any);
  }

  // Once as many names are known as are kept, nothing changes any more.
  void count(std::size_t slot, std::int32_t name, const Told& told, std::size_t most) {
    Counts& counts = beat.counts[slot];
    if (counts.size() >= most) return;
    const std::int64_t count = told.kind == Told::Kind::kInt
                                   ? told.integer
                                   : static_cast<std::int64_t>(told.real);
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
