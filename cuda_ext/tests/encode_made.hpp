// Encoders and records for tests, and enough of protobuf to read what comes out.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "otel_straggler/encode.hpp"

namespace otel_straggler::made {

using namespace encoding;

inline Vocabulary words() {
  Vocabulary words;
  for (std::size_t at = 0; at < words.size(); ++at) words[at] = "word " + std::to_string(at);
  words[kStepSpanWord] = "step";
  return words;
}

inline SpanEncoder encoder(std::uint64_t spans_per_s = 0) {
  SpanEncoder encoder(words(), Identity{"run", 0, "", 3}, 7, spans_per_s);
  encoder.add_section(0, "step", "other");
  encoder.add_section(1, "forward", "compute");
  encoder.add_section(2, "layer", "compute");
  encoder.add_phase(1, "eval");
  encoder.add_epoch(0, {});
  return encoder;
}

inline Record run(std::uint64_t span, std::int64_t start_ns, std::int64_t end_ns) {
  Record record{};
  record.span = span;
  record.step = 5;
  record.step_span = 1'000'000;
  record.start_ns = start_ns;
  record.end_ns = end_ns;
  record.tokens = record.microbatch = kNotReported;
  record.section = 1;
  record.parent_section = kNoSection;
  return record;
}

inline std::vector<Request> encode(SpanEncoder& encoder, const std::vector<Record>& records,
                                   std::uint64_t one_in = 1) {
  std::vector<Request> out;
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(records.data());
  encoder.encode(bytes, records.size(), 1'790'000'000'000'000'000, one_in, out);
  return out;
}

// A message as its fields: numbers and texts by field number, in order.
struct Message {
  std::multimap<std::uint32_t, std::string> parts;
  std::multimap<std::uint32_t, std::uint64_t> numbers;

  static Message of(const std::string& bytes) {
    Message message;
    std::size_t at = 0;
    const auto varint = [&] {
      std::uint64_t value = 0;
      for (unsigned shift = 0;; shift += 7) {
        REQUIRE(at < bytes.size());
        const auto byte = static_cast<std::uint8_t>(bytes[at++]);
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) return value;
      }
    };
    while (at < bytes.size()) {
      const std::uint64_t tag = varint();
      const auto field = static_cast<std::uint32_t>(tag >> 3);
      if ((tag & 7) == proto::kLength) {
        const std::uint64_t size = varint();
        REQUIRE(size <= bytes.size() - at);
        message.parts.emplace(field, bytes.substr(at, size));
        at += size;
      } else if ((tag & 7) == proto::kVarint) {
        message.numbers.emplace(field, varint());
      } else {
        const std::size_t size = (tag & 7) == proto::kFixed64 ? 8 : 4;
        REQUIRE(size <= bytes.size() - at);
        std::uint64_t value = 0;
        std::memcpy(&value, bytes.data() + at, size);
        message.numbers.emplace(field, value);
        at += size;
      }
    }
    return message;
  }

  Message part(std::uint32_t field) const {
    REQUIRE(parts.count(field) == 1);
    return of(parts.find(field)->second);
  }
};

// The spans of a request, each as its fields.
inline std::vector<Message> spans_of(const Request& request) {
  const std::string bytes(reinterpret_cast<const char*>(request.data()), request.size());
  const Message scope = Message::of(bytes).part(1).part(2);
  std::vector<Message> spans;
  const auto [from, to] = scope.parts.equal_range(2);
  for (auto at = from; at != to; ++at) spans.push_back(Message::of(at->second));
  return spans;
}

// Integer attributes by key.
inline std::map<std::string, std::uint64_t> numbers_of(const Message& span) {
  std::map<std::string, std::uint64_t> found;
  const auto [from, to] = span.parts.equal_range(9);
  for (auto at = from; at != to; ++at) {
    const Message pair = Message::of(at->second);
    const Message value = pair.part(2);
    if (value.numbers.count(3) == 1) {
      found[pair.parts.find(1)->second] = value.numbers.find(3)->second;
    }
  }
  return found;
}

// Text attributes by key.
inline std::map<std::string, std::string> texts_of(const Message& span) {
  std::map<std::string, std::string> found;
  const auto [from, to] = span.parts.equal_range(9);
  for (auto at = from; at != to; ++at) {
    const Message pair = Message::of(at->second);
    const Message value = pair.part(2);
    if (value.parts.count(1) == 1) found[pair.parts.find(1)->second] = value.parts.find(1)->second;
  }
  return found;
}

}  // namespace otel_straggler::made
