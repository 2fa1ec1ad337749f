#include <doctest/doctest.h>

#include <random>
#include <set>
#include <vector>

#include "otel_straggler/cupti/busy_time.hpp"

using namespace otel_straggler::cupti;

TEST_CASE("overlapping kernels make the GPU busy once") {
  BusyTime busy;
  busy.add({10, 20});
  busy.add({15, 30});
  busy.add({40, 50});
  busy.add({12, 18});
  busy.add({0, 5});
  CHECK(busy.total_ns() == 35);
  busy.add({4, 45});
  CHECK(busy.total_ns() == 50);
}

TEST_CASE("in any order, and in parts, the union is that of single nanoseconds") {
  std::mt19937_64 random(1);
  for (int times = 0; times < 2'000; ++times) {
    BusyTime whole;
    BusyTime parts[2];
    std::set<std::uint64_t> covered;
    for (int at = 0; at < 30; ++at) {
      const std::uint64_t start = random() % 200;
      const std::uint64_t end = start + random() % 20;
      for (std::uint64_t ns = start; ns < end; ++ns) covered.insert(ns);
      whole.add({start, end});
      parts[random() % 2].add({start, end});
      if (random() % 10 == 0) static_cast<void>(whole.total_ns());
    }
    parts[0].add(parts[1]);
    REQUIRE(whole.total_ns() == covered.size());
    REQUIRE(parts[0].total_ns() == covered.size());
  }
}

TEST_CASE("a hundred thousand kernels apart cost bounded memory and are counted whole") {
  BusyTime busy;
  for (std::uint64_t at = 0; at < 100'000; ++at) {
    busy.add({at * 10, at * 10 + 4});
    REQUIRE(busy.size() <= BusyTime::kMaxIntervals);
  }
  CHECK(busy.total_ns() == 400'000);
}

TEST_CASE("two streams one after the other are still a union") {
  BusyTime busy;
  for (std::uint64_t at = 0; at < 3'000; ++at) busy.add({at * 10, at * 10 + 6});
  for (std::uint64_t at = 0; at < 3'000; ++at) busy.add({at * 10 + 4, at * 10 + 8});
  CHECK(busy.total_ns() == 24'000);
}
