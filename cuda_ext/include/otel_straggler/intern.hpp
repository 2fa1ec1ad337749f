// Byte strings to small numbers: the same bytes always get the same number.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "otel_straggler/protobuf.hpp"

namespace otel_straggler {

// Seeded, so that names cannot be chosen to collide in one place of a table.
class Hash {
 public:
  Hash() : seed_((std::uint64_t{std::random_device{}()} << 32) | std::random_device{}()) {}

  std::uint64_t operator()(Bytes bytes) const {
    std::uint64_t hash = seed_ ^ (bytes.size * kMix);
    const std::uint8_t* at = bytes.data;
    std::size_t left = bytes.size;
    for (; left >= 8; left -= 8, at += 8) hash = mix(hash ^ load<std::uint64_t>(at));
    if (left > 0) {
      std::uint64_t rest = 0;
      std::memcpy(&rest, at, left);
      hash = mix(hash ^ rest);
    }
    return hash;
  }

 private:
  static constexpr std::uint64_t kMix = 0x9E37'79B9'7F4A'7C15U;

  static std::uint64_t mix(std::uint64_t x) {
    x *= kMix;
    return x ^ (x >> 29);
  }

  std::uint64_t seed_;
};

// Holds at most `most` strings of `max_bytes` together.
class InternTable {
 public:
  static constexpr std::uint32_t kFull = UINT32_MAX;

  InternTable(std::size_t limit, std::size_t max_bytes)
      : limit_(limit), max_bytes_(max_bytes), places_(64, kFull) {}

  std::size_t size() const { return entries_.size(); }

  // The number of these bytes, in order of first appearance; kFull if they are new and there is no
  // room.
  std::uint32_t number_of(Bytes bytes) {
    const std::uint64_t hash = hash_(bytes);
    std::size_t place = hash & (places_.size() - 1);
    for (; places_[place] != kFull; place = (place + 1) & (places_.size() - 1)) {
      const Entry& entry = entries_[places_[place]];
      if (entry.hash == hash && bytes == Bytes{text_at(entry), entry.size}) return places_[place];
    }
    return add(bytes, hash, place);
  }

 private:
  struct Entry {
    std::uint64_t hash;
    std::size_t offset;
    std::size_t size;
  };

  const std::uint8_t* text_at(const Entry& entry) const { return bytes_.data() + entry.offset; }

  std::uint32_t add(Bytes bytes, std::uint64_t hash, std::size_t place) {
    if (entries_.size() >= limit_ || bytes.size > max_bytes_ - bytes_.size()) return kFull;
    const auto number = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({hash, bytes_.size(), bytes.size});
    if (bytes.size > 0) bytes_.insert(bytes_.end(), bytes.data, bytes.end());
    places_[place] = number;
    if (entries_.size() * 2 > places_.size()) grow();
    return number;
  }

  void grow() {
    places_.assign(places_.size() * 2, kFull);
    for (std::uint32_t number = 0; number < entries_.size(); ++number) {
      std::size_t place = entries_[number].hash & (places_.size() - 1);
      while (places_[place] != kFull) place = (place + 1) & (places_.size() - 1);
      places_[place] = number;
    }
  }

  std::size_t limit_;
  std::size_t max_bytes_;
  Hash hash_;
  std::vector<Entry> entries_;
  std::vector<std::uint8_t> bytes_;
  std::vector<std::uint32_t> places_;
};

}  // namespace otel_straggler
