// Metrics requests for tests, encoded field by field.
#pragma once

#include "requests.hpp"

namespace metric_requests {

using requests::content;
using requests::fixed64;
using requests::integer;
using requests::number;
using requests::text;

inline std::string pair(std::uint32_t field, const std::string& key, const std::string& value) {
  return content(field, content(1, key) + content(2, value));
}

inline std::string real64(std::uint32_t field, double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return fixed64(field, bits);
}

// A message Metric; `kind` is the field of its data.
inline std::string metric(const std::string& name, std::uint32_t kind, const std::string& points,
                          const std::string& more = "") {
  return content(2, content(1, name) + content(3, "s") + content(kind, points + more));
}

inline std::string gauge(const std::string& name, double value, const std::string& attributes = "") {
  return metric(name, 5, content(1, attributes + fixed64(3, 1) + real64(4, value)));
}

inline std::string counter(const std::string& name, std::int64_t value, const std::string& reason) {
  const std::string point =
      pair(7, "reason", text(reason)) + fixed64(6, static_cast<std::uint64_t>(value));
  return metric(name, 7, content(1, point), number(2, 2) + number(3, 1));
}

inline std::string fixed64s(const std::vector<std::uint64_t>& values) {
  std::string all;
  for (const std::uint64_t value : values) all += fixed64(0, value).substr(1);
  return all;
}

// Of two buckets, in sections of this name.
inline std::string histogram(const std::string& section, std::uint64_t first,
                             std::uint64_t second) {
  const std::string point = pair(9, "section", text(section)) + fixed64(3, 1'000) +
                            fixed64(4, first + second) + real64(5, 0.5) +
                            content(6, fixed64s({first, second})) + real64(7, 0.25);
  return metric("times", 9, content(1, point), number(2, 2));
}

inline std::string exponential(const std::string& section, std::uint64_t count) {
  const std::string buckets = number(1, 3) + content(2, requests::varint(count) + '\0');
  const std::string point = pair(1, "section", text(section)) + fixed64(3, 1'000) +
                            fixed64(4, count) + number(6, 6) + content(8, buckets) +
                            content(9, content(2, std::string(2, '\0')));
  return metric("times", 10, content(1, point), number(2, 1));
}

// Of a kernel, in a section; a delta.
inline std::string kernel(const std::string& name, const std::string& section,
                          std::uint64_t count) {
  const std::string buckets = number(1, 19) + content(2, requests::varint(count) + '\0');
  const std::string point = pair(1, "kernel", text(name)) + pair(1, "section", text(section)) +
                            fixed64(2, 1) + fixed64(3, 1'000) + fixed64(4, count) +
                            real64(5, 0.5) + number(6, 14) + content(8, buckets) + real64(12, 0.1);
  return metric("kernels", 10, content(1, point), number(2, 1));
}

inline std::string request(const std::string& metrics, const std::string& rank = "1") {
  const std::string scope = content(2, content(1, content(1, "scope")) + metrics);
  return content(1, content(1, pair(1, "rank", text(rank))) + scope);
}

// One of what ranks send, and of what others send.
inline std::string any_metric(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  const std::string names[] = {"forward", "größe", "", "step"};
  const std::string& name = names[below(4)];
  switch (below(10)) {
    case 9: return kernel(name, names[below(4)], below(300));
    case 0: return gauge("sent", static_cast<double>(below(99)));
    case 1: return gauge("open", 0.5, pair(7, "section", text(name)));
    case 2: return gauge("step", -1.0 + static_cast<double>(below(9)), pair(7, "rank", text("2")));
    case 3: return gauge("info", 1.0, pair(7, "role", text(name)) + pair(7, "x", integer(3)));
    case 4: return counter("dropped", static_cast<std::int64_t>(below(300)), name);
    case 5: return histogram(name, below(300), below(3));
    case 6: return exponential(name, below(300));
    case 7: {
      const std::string exemplar = content(5, pair(7, "in", text(name)) + real64(3, 1.0));
      return gauge("others", 1.0, exemplar);
    }
    default:
      return metric("summary", 11,
                    content(1, pair(7, "a", text(name)) + content(6, real64(1, 0.5))));
  }
}

inline std::string any(std::mt19937_64& random) {
  std::string all;
  for (std::uint64_t r = 0; r < 1 + random() % 2; ++r) {
    std::string metrics;
    for (std::uint64_t i = 0; i < random() % 9; ++i) metrics += any_metric(random);
    all += request(metrics, std::to_string(random() % 3));
  }
  return all;
}

}  // namespace metric_requests
