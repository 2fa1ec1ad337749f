// BLAKE2b (RFC 7693) without a key: what trace ids are made with.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace otel_straggler {

// Hashes a text at once. `person` (16 bytes at most) makes hashes of one purpose differ from those
// of another.
class Blake2b {
 public:
  static constexpr std::size_t kMaxBytes = 64;

  // Writes `size` bytes, 1 to kMaxBytes, to `digest`.
  static void hash(std::string_view text, std::string_view person, std::uint8_t* digest,
                   std::size_t size) {
    Blake2b state(person, size);
    std::array<std::uint8_t, kBlock> block{};
    std::size_t at = 0;
    for (; text.size() - at > kBlock; at += kBlock) {
      std::memcpy(block.data(), text.data() + at, kBlock);
      state.compress(block, at + kBlock, false);
    }
    block.fill(0);
    const std::string_view rest = text.substr(at);
    std::copy(rest.begin(), rest.end(), block.begin());
    state.compress(block, text.size(), true);
    for (std::size_t i = 0; i < size; ++i) {
      digest[i] = static_cast<std::uint8_t>(state.h_[i / 8] >> (8 * (i % 8)));
    }
  }

 private:
  static constexpr std::size_t kBlock = 128;
  using Words = std::array<std::uint64_t, 16>;

  Blake2b(std::string_view person, std::size_t size) : h_(kInitial) {
    std::array<std::uint8_t, 16> named{};
    const std::size_t length = std::min(person.size(), named.size());
    std::copy_n(person.begin(), length, named.begin());
    h_[0] ^= 0x01010000U ^ static_cast<std::uint64_t>(size);
    h_[6] ^= word_at(named.data());
    h_[7] ^= word_at(named.data() + 8);
  }

  void compress(const std::array<std::uint8_t, kBlock>& block, std::uint64_t total, bool is_last) {
    Words m{};
    for (std::size_t i = 0; i < m.size(); ++i) m[i] = word_at(block.data() + 8 * i);
    Words v{};
    std::copy(h_.begin(), h_.end(), v.begin());
    std::copy(kInitial.begin(), kInitial.end(), v.begin() + 8);
    v[12] ^= total;
    if (is_last) v[14] = ~v[14];
    for (std::size_t round = 0; round < kRounds; ++round) mix_all(v, m, kOrder[round % 10]);
    for (std::size_t i = 0; i < h_.size(); ++i) h_[i] ^= v[i] ^ v[i + 8];
  }

  static void mix_all(Words& v, const Words& m, const std::array<std::uint8_t, 16>& order) {
    for (std::size_t i = 0; i < 4; ++i) {
      mix(v[i], v[i + 4], v[i + 8], v[i + 12], m[order[2 * i]], m[order[2 * i + 1]]);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      mix(v[i], v[4 + (i + 1) % 4], v[8 + (i + 2) % 4], v[12 + (i + 3) % 4],
          m[order[8 + 2 * i]], m[order[9 + 2 * i]]);
    }
  }

  static void mix(std::uint64_t& a, std::uint64_t& b, std::uint64_t& c, std::uint64_t& d,
                  std::uint64_t x, std::uint64_t y) {
    a += b + x;
    d = rotated(d ^ a, 32);
    c += d;
    b = rotated(b ^ c, 24);
    a += b + y;
    d = rotated(d ^ a, 16);
    c += d;
    b = rotated(b ^ c, 63);
  }

  static std::uint64_t rotated(std::uint64_t value, unsigned bits) {
    return value >> bits | value << (64 - bits);
  }

  static std::uint64_t word_at(const std::uint8_t* at) {
    std::uint64_t word = 0;
    for (unsigned i = 0; i < 8; ++i) word |= static_cast<std::uint64_t>(at[i]) << (8 * i);
    return word;
  }

  static constexpr std::size_t kRounds = 12;
  static constexpr std::array<std::uint64_t, 8> kInitial = {
      0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
      0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179};
  static constexpr std::array<std::array<std::uint8_t, 16>, 10> kOrder = {{
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
      {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
      {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
      {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
      {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
      {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
      {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
      {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
      {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
      {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
  }};

  std::array<std::uint64_t, 8> h_;
};

}  // namespace otel_straggler
