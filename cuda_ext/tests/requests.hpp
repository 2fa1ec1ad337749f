// Trace requests for tests, encoded field by field.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "otel_straggler/protobuf.hpp"

namespace requests {

inline std::string varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text.push_back(static_cast<char>(value | 0x80));
  text.push_back(static_cast<char>(value));
  return text;
}

inline std::string content(std::uint32_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

inline std::string number(std::uint32_t field, std::uint64_t value) {
  return varint(field << 3) + varint(value);
}

inline std::string fixed64(std::uint32_t field, std::uint64_t value) {
  return varint(field << 3 | 1) + std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::string attribute(const std::string& key, const std::string& value) {
  return content(9, content(1, key) + content(2, value));
}

inline std::string text(const std::string& value) { return content(1, value); }
inline std::string integer(std::int64_t value) {
  return number(3, static_cast<std::uint64_t>(value));
}

inline std::string real(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return fixed64(4, bits);
}

struct Span {
  std::string trace_id = std::string(16, 't');
  std::string span_id = std::string(8, 's');
  std::uint64_t start_ns = 1'000;
  std::uint64_t end_ns = 3'000;
  std::string name = "forward";
  std::string rest;  // more fields

  std::string encoded() const {
    return content(1, trace_id) + content(2, span_id) + content(5, name) + number(6, 1) +
           fixed64(7, start_ns) + fixed64(8, end_ns) + rest;
  }
};

inline std::string scope(const std::string& spans, const std::string& name = "otel_straggler") {
  return content(2, content(1, content(1, name)) + spans);
}

inline std::string resource(const std::string& scopes, const std::string& name = "job") {
  const std::string pair = content(1, "service.name") + content(2, text(name));
  return content(1, content(1, content(1, pair)) + scopes);
}

using otel_straggler::bytes_of;

// A span of one of a few kinds.
inline Span any_span(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  const auto number_below = [&](std::uint64_t limit) {
    return integer(static_cast<std::int64_t>(below(limit)));
  };
  const char* const names[] = {"forward", "backward", "größe", "step", ""};
  Span span;
  span.name = names[below(5)];
  span.start_ns = below(16) == 0 ? 0 : 1 + below(1'000'000);
  span.end_ns = span.start_ns + below(1'000);
  span.rest = attribute("section", text(names[below(5)])) + attribute("step", number_below(300)) +
              attribute("loss", real(0.5));
  if (below(2) == 0) span.rest += attribute("tokens", real(static_cast<double>(below(9))));
  if (below(4) == 0) span.rest += attribute("rank", number_below(4));
  if (below(8) == 0) {
    const std::string list = content(5, content(1, integer(1)));
    span.rest += content(11, content(2, "event") + attribute("list", list));
  }
  if (below(8) == 0) span.rest += content(15, number(3, below(3)));
  return span;
}

// A request of a few such spans.
inline std::string any(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  std::string request;
  for (std::uint64_t r = 0; r < 1 + below(2); ++r) {
    std::string scopes;
    for (std::uint64_t s = 0; s < 1 + below(2); ++s) {
      std::string spans;
      for (std::uint64_t i = 0; i < below(12); ++i) {
        spans += content(2, any_span(random).encoded());
      }
      scopes += scope(spans, below(4) == 0 ? "other" : "otel_straggler");
    }
    request += resource(scopes, "job " + std::to_string(below(3)));
  }
  return request;
}

// Changes, removes or adds a few bytes.
inline void mangle(std::string& request, std::mt19937_64& random) {
  if (request.empty()) return;
  const std::size_t at = random() % request.size();
  switch (random() % 5) {
    case 0: request[at] = static_cast<char>(random()); break;
    case 1: request[at] = static_cast<char>(request[at] ^ (1 << (random() % 8))); break;
    case 2: request.erase(at, 1 + random() % 16); break;
    case 3: request.insert(at, 1 + random() % 8, static_cast<char>(random())); break;
    default: request.resize(at); break;
  }
}

}  // namespace requests
