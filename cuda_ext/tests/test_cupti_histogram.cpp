#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "otel_straggler/cupti/kernel_stats.hpp"

using namespace otel_straggler::cupti;

namespace {

// Whole numbers of any length, the lowest 32 bits first.
using Long = std::vector<std::uint32_t>;

Long product(const Long& a, const Long& b) {
  Long result(a.size() + b.size(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      carry += std::uint64_t{a[i]} * b[j] + result[i + j];
      result[i + j] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    result[i + b.size()] = static_cast<std::uint32_t>(carry);
  }
  while (result.size() > 1 && result.back() == 0) result.pop_back();
  return result;
}

Long to_the_128th(std::uint64_t value) {
  Long result{static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32)};
  for (int squarings = 0; squarings < 7; ++squarings) result = product(result, result);
  return result;
}

Long shifted(const Long& value, std::uint32_t bits) {
  Long power(bits / 32 + 1, 0);
  power.back() = 1U << bits % 32;
  return product(value, power);
}

bool is_less(const Long& a, const Long& b) {
  if (a.size() != b.size()) return a.size() < b.size();
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

// Whether 2^(index / 128) s < duration <= 2^((index + 1) / 128) s, in whole numbers.
bool is_in_bucket(std::uint64_t duration_ns, std::int32_t index) {
  static const Long second = to_the_128th(1'000'000'000);
  const Long duration = to_the_128th(duration_ns);
  const auto below = [&](std::int32_t power) {  // 2^power * second < duration
    return power >= 0 ? is_less(shifted(second, static_cast<std::uint32_t>(power)), duration)
                      : is_less(second, shifted(duration, static_cast<std::uint32_t>(-power)));
  };
  return below(index) && !below(index + 1);
}

std::uint64_t count_of(const Histogram& histogram) {
  std::uint64_t count = 0;
  for (const std::uint32_t bucket : histogram.buckets) count += bucket;
  return count;
}

}  // namespace

TEST_CASE("a duration is put into the bucket that arithmetic without rounding says") {
  const BucketIndex index;
  std::mt19937_64 random(1);
  int wrong = 0;
  const auto check = [&](std::uint64_t duration_ns) {
    wrong += !is_in_bucket(duration_ns, index(duration_ns));
  };
  for (std::uint64_t duration_ns = 1; duration_ns <= 600; ++duration_ns) check(duration_ns);
  for (unsigned octave = 10; octave < 40; octave += 3) {
    check(std::uint64_t{1} << octave);
    for (int at = 0; at < 50; ++at) {
      check((std::uint64_t{1} << octave) + random() % (std::uint64_t{1} << octave));
    }
  }
  CHECK(wrong == 0);
  CHECK(index(1'000'000'000) == -1);  // one second is the end of the bucket below it
  CHECK(index(1'000'000'001) == 0);
  CHECK(index(500'000'000) == -129);
  CHECK(index(4'000'000'000) == 255);
}

TEST_CASE("on both sides of every bound of an octave a duration is put right") {
  const BucketIndex index;
  int wrong = 0;
  const std::int32_t first = index(std::uint64_t{1} << 35);
  for (std::int32_t bucket = first; bucket < first + 128; ++bucket) {
    std::uint64_t low = std::uint64_t{1} << 35;
    std::uint64_t high = std::uint64_t{1} << 36;
    while (low + 1 < high) {  // the last duration of the bucket
      const std::uint64_t middle = (low + high) / 2;
      (index(middle) <= bucket ? low : high) = middle;
    }
    wrong += !is_in_bucket(low, bucket) + !is_in_bucket(low + 1, bucket + 1);
  }
  CHECK(wrong <= 1);  // the octave's last bound lies in the next
}

TEST_CASE("a median read from the buckets is within half a percent") {
  std::mt19937_64 random(2);
  std::lognormal_distribution<double> durations(9.0, 0.3);
  const BucketIndex index;
  Histogram histogram;
  std::vector<std::uint64_t> all;
  for (int at = 0; at < 10'001; ++at) {
    all.push_back(static_cast<std::uint64_t>(durations(random)));
    histogram.add(index(all.back()));
  }
  std::nth_element(all.begin(), all.begin() + 5'000, all.end());
  std::uint64_t seen = 0;
  std::size_t at = 0;
  while ((seen += histogram.buckets[at]) < 5'001) ++at;
  const double middle = histogram.offset + static_cast<double>(at) + 0.5;
  const double median_ns = std::exp2(middle / std::exp2(histogram.scale)) * 1e9;
  CHECK(histogram.scale == kFinestScale);
  CHECK(std::abs(median_ns / static_cast<double>(all[5'000]) - 1) < 0.005);
}

TEST_CASE("durations far apart are counted in wider buckets, none is lost") {
  std::mt19937_64 random(3);
  const BucketIndex index;
  for (int times = 0; times < 200; ++times) {
    Histogram histogram;
    std::vector<std::uint64_t> durations;
    for (int at = 0; at < 60; ++at) {
      durations.push_back((random() >> (24 + random() % 38)) + 1);
      histogram.add(index(durations.back()));
    }
    REQUIRE(histogram.buckets.size() <= kMaxBuckets);
    Histogram again;  // of the same scale from the beginning
    std::vector<std::uint32_t> expected(histogram.buckets.size(), 0);
    for (const std::uint64_t duration_ns : durations) {
      const std::int32_t place =
          (index(duration_ns) >> (kFinestScale - histogram.scale)) - histogram.offset;
      REQUIRE(place >= 0);
      ++expected.at(static_cast<std::size_t>(place));
    }
    REQUIRE(histogram.buckets == expected);
    REQUIRE(count_of(histogram) == durations.size());
  }
}

TEST_CASE("a kernel's cell has count, sum, shortest and longest") {
  KernelStats stats;
  for (const std::uint64_t duration_ns : {5U, 3U, 9U, 0U}) stats.add(7, 0, 2, duration_ns);
  stats.add(7, 0, 3, 1);
  const std::vector<KernelCell> cells = stats.drain();
  REQUIRE(cells.size() == 2);
  CHECK(cells[0].kernel == 7);
  CHECK(cells[0].section == 2);
  CHECK(cells[0].count == 4);
  CHECK(cells[0].sum_ns == 17);
  CHECK(cells[0].min_ns == 0);
  CHECK(cells[0].max_ns == 9);
  CHECK(count_of(cells[0].histogram) == 3);  // of none is no logarithm
  CHECK(stats.size() == 0);
  stats.add(7, 0, 2, 1);
  CHECK(stats.drain().at(0).count == 1);
}

TEST_CASE("ten thousand kernels in eight sections cost bounded memory, what is above is <other>") {
  KernelStats stats;
  std::mt19937_64 random(4);
  std::uint64_t added = 0;
  for (std::uint32_t round = 0; round < 20; ++round) {
    for (std::uint32_t kernel = 0; kernel < 10'000; ++kernel) {
      stats.add(kernel + 3, 0, kernel % 8, (random() >> (30 + random() % 30)) + 1);
      ++added;
    }
  }
  CHECK(stats.size() <= KernelStats::kMaxCells + 8);
  CHECK(stats.left_out() > 0);
  CHECK(stats.bytes() < 24U << 20);
  std::uint64_t counted = 0;
  for (const KernelCell& cell : stats.drain()) counted += cell.count;
  CHECK(counted == added);
}
