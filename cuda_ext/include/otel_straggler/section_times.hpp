// Histogram points -> section times, if they make sense. The same as
// otel_straggler/otlp/metric_rules.py, in the same order.
#pragma once

#include <cmath>

#include "otel_straggler/metric_points.hpp"

namespace otel_straggler {

inline constexpr std::uint64_t kMaxRuns = std::uint64_t{1} << 53;
inline constexpr int kLargestExponent = 62;  // of a time, in its unit
inline constexpr std::int32_t kCoarsestScale = -10;
inline constexpr std::int32_t kFinestScale = 20;

namespace detail {

inline constexpr std::uint32_t kNoRecordedValue = 1;
inline constexpr double kLongest = 0x1p62;

inline bool is_time(double value) { return value >= 0.0 && value < kLongest; }

// The sum of all; kMaxRuns where it would be that or more.
inline std::uint64_t runs_of(const std::vector<std::uint64_t>& counts) {
  std::uint64_t runs = 0;
  for (const std::uint64_t count : counts) {
    if (count >= kMaxRuns - runs) return kMaxRuns;
    runs += count;
  }
  return runs;
}

inline bool are_ascending(const std::vector<double>& bounds) {
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    if (!std::isfinite(bounds[i]) || (i > 0 && bounds[i] <= bounds[i - 1])) return false;
  }
  return true;
}

inline bool read_explicit(HistogramPoint& point, BucketCounts& to) {
  std::vector<std::uint64_t>& counts = point.counts.numbers();
  std::vector<double>& bounds = point.bounds.numbers();
  if (bounds.empty() && counts.empty()) counts.push_back(point.count);  // one without buckets
  if (point.counts.are_too_many() || counts.size() != bounds.size() + 1) return false;
  const std::uint64_t runs = runs_of(counts);
  if (runs >= kMaxRuns || runs != point.count || !are_ascending(bounds)) return false;
  to.counts.assign(counts.begin(), counts.end());
  to.bounds = std::move(bounds);
  return true;
}

inline bool read_exponential(HistogramPoint& point, BucketCounts& to) {
  std::vector<std::uint64_t>& counts = point.counts.numbers();
  if (point.scale < kCoarsestScale || point.scale > kFinestScale || point.has_negative) return false;
  if (counts.size() + 1 > kMaxBuckets || !is_time(point.zero_bound)) return false;
  const std::uint64_t runs = runs_of(counts);
  if (point.zero >= kMaxRuns - runs || runs + point.zero != point.count) return false;
  while (!counts.empty() && counts.back() == 0) counts.pop_back();
  const auto end = static_cast<double>(point.first) + static_cast<double>(counts.size());
  if (std::ldexp(end, -point.scale) > kLargestExponent) return false;
  to.counts.assign(counts.begin(), counts.end());
  to.scale = point.scale;
  to.first = point.first;
  to.zero = static_cast<std::int64_t>(point.zero);
  to.zero_bound = point.zero_bound;
  return true;
}

inline std::optional<double> time_in(const std::optional<double>& value, double unit_s) {
  if (!value || !is_time(*value)) return std::nullopt;
  return *value * unit_s;
}

}  // namespace detail

// False if it makes no sense. `point` is used up.
inline bool read_times(HistogramPoint& point, bool is_exponential, double unit_s, PointTimes& to) {
  const bool has_end = point.end_ns > 0 && point.end_ns <= static_cast<std::uint64_t>(INT64_MAX);
  if (!has_end || point.start_ns > point.end_ns) return false;
  if ((point.flags & detail::kNoRecordedValue) != 0) return false;
  const bool is_read = is_exponential ? detail::read_exponential(point, to.buckets)
                                      : detail::read_explicit(point, to.buckets);
  if (!is_read) return false;
  to.start_ns = static_cast<std::int64_t>(point.start_ns);
  to.end_ns = static_cast<std::int64_t>(point.end_ns);
  to.unit_s = unit_s;
  to.sum = detail::time_in(point.sum, 1.0);
  to.min_s = detail::time_in(point.min, unit_s);
  to.max_s = detail::time_in(point.max, unit_s);
  return true;
}

}  // namespace otel_straggler
