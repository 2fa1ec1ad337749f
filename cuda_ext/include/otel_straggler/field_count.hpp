// How many messages and texts a full parser would make of a request: each takes some hundred bytes
// there, though two of the wire can say so.
#pragma once

#include "otel_straggler/protobuf.hpp"

namespace otel_straggler {

inline constexpr int kMaxCountedDepth = 8;  // of a request, down to the text of an attribute

// Fields with a length, at any depth, up to `limit`. Without a schema a text may pass for a message:
// the count is never too low for what OTLP nests.
inline std::size_t count_fields(Bytes message, std::size_t limit, int depth = kMaxCountedDepth) {
  std::size_t count = 0;
  Field field;
  FieldReader reader(message);
  while (count < limit && reader.next(field)) {
    if (field.type != WireType::kLength) continue;
    ++count;
    if (depth > 1 && field.content.size > 1) {
      count += count_fields(field.content, limit - count, depth - 1);
    }
  }
  return count;
}

}  // namespace otel_straggler
