// Lengths counted in buckets 1/256 wide and finer, by whole numbers alone, so that every form of the
// package counts alike. See otel_straggler/otlp/folded_spans.py.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto_write.hpp"

namespace otel_straggler {

inline constexpr unsigned kSketchBits = 8;

// The bucket of a length: itself below 512, above that its highest 9 bits and how many follow.
inline std::uint16_t sketch_bucket(std::uint64_t length_ns) {
  if (length_ns < (2U << kSketchBits)) return static_cast<std::uint16_t>(length_ns);
  const unsigned dropped = 63U - static_cast<unsigned>(__builtin_clzll(length_ns)) - kSketchBits;
  return static_cast<std::uint16_t>((dropped << kSketchBits) + (length_ns >> dropped));
}

// Pairs of varints: distance from the bucket before, and how often. Sorts what it is given.
inline void append_sketch(proto::Bytes& out, std::vector<std::uint16_t>& buckets) {
  std::sort(buckets.begin(), buckets.end());
  std::uint32_t before = 0;
  for (std::size_t at = 0; at < buckets.size();) {
    const std::uint16_t bucket = buckets[at];
    const std::size_t first = at;
    while (at < buckets.size() && buckets[at] == bucket) ++at;
    proto::append_varint(out, bucket - before);
    proto::append_varint(out, at - first);
    before = bucket;
  }
}

}  // namespace otel_straggler
