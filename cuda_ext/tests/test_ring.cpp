#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "otel_straggler/ring.hpp"

using namespace otel_straggler;

namespace {

struct SmallRing {
  explicit SmallRing(std::size_t capacity) : places(capacity), ring(control, places.data(), capacity) {}
  RingControl control{};
  std::vector<Record> places;
  Ring ring;
};

Record numbered(std::uint64_t span, std::uint32_t thread = 0) {
  Record record{};
  record.span = span;
  record.end_ns = static_cast<std::int64_t>(span);
  record.thread = thread;
  record.gpu.kernel_count = static_cast<std::uint32_t>(span);
  return record;
}

}  // namespace

TEST_CASE("records come out in the order in which they went in, over many laps") {
  SmallRing small(8);
  std::uint64_t next = 0;
  for (std::uint64_t span = 0; span < 100; ++span) {
    REQUIRE(small.ring.add(numbered(span)));
    if (span % 5 != 4) continue;
    Record taken[8];
    const std::size_t count = small.ring.drain(taken, 8);
    CHECK(count == 5);
    for (std::size_t at = 0; at < count; ++at, ++next) {
      CHECK(taken[at].span == next);
      CHECK(taken[at].sequence == next);
      CHECK(taken[at].gpu.kernel_count == next);
    }
  }
}

TEST_CASE("a full ring refuses and goes on once there is room") {
  SmallRing small(4);
  for (std::uint64_t span = 0; span < 4; ++span) CHECK(small.ring.add(numbered(span)));
  CHECK_FALSE(small.ring.add(numbered(4)));
  CHECK(small.ring.size() == 4);
  Record taken;
  CHECK(small.ring.drain(&taken, 1) == 1);
  CHECK(small.ring.add(numbered(5)));
  CHECK_FALSE(small.ring.add(numbered(6)));
}

TEST_CASE("an empty ring gives nothing, also after it was cleared") {
  SmallRing small(4);
  Record taken[4];
  CHECK(small.ring.drain(taken, 4) == 0);
  for (std::uint64_t span = 0; span < 3; ++span) CHECK(small.ring.add(numbered(span)));
  small.ring.count_dropped();
  small.ring.clear();
  CHECK(small.ring.drain(taken, 4) == 0);
  CHECK(small.ring.size() == 0);
  CHECK(small.ring.dropped() == 0);
  for (std::uint64_t span = 0; span < 4; ++span) CHECK(small.ring.add(numbered(span)));
}

TEST_CASE("many producers and a consumer: every record comes out once, each thread's in order") {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint64_t kEach = 20'000;
  SmallRing small(256);
  std::atomic<std::uint32_t> running{kThreads};
  std::atomic<std::uint64_t> refused{0};
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t span = 0; span < kEach; ++span) {
        if (!small.ring.add(numbered(span, thread))) refused.fetch_add(1);
      }
      running.fetch_sub(1);
    });
  }
  std::uint64_t taken = 0;
  std::uint64_t sequence = 0;
  std::vector<std::int64_t> last(kThreads, -1);
  Record records[64];
  for (bool is_last = false; !is_last;) {
    is_last = running.load() == 0;
    for (std::size_t count; (count = small.ring.drain(records, 64)) > 0; taken += count) {
      for (std::size_t at = 0; at < count; ++at) {
        REQUIRE(records[at].sequence == sequence++);
        REQUIRE(records[at].end_ns > last[records[at].thread]);
        REQUIRE(records[at].gpu.kernel_count == records[at].span);
        last[records[at].thread] = records[at].end_ns;
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(taken + refused.load() == kThreads * kEach);
  CHECK(taken > 0);
}
