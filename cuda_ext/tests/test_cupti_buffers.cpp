#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "otel_straggler/cupti/buffers.hpp"

using namespace otel_straggler::cupti;

namespace {

constexpr std::size_t kBytes = 4'096;

bool is_zero(const std::uint8_t* buffer) {
  return std::all_of(buffer, buffer + kBytes, [](std::uint8_t byte) { return byte == 0; });
}

}  // namespace

TEST_CASE("so many buffers and no more; each comes back zeroed") {
  BufferPool pool(kBytes, 3);
  REQUIRE(pool.has_memory());
  pool.prepare(2);
  std::vector<std::uint8_t*> taken;
  for (int at = 0; at < 3; ++at) {
    taken.push_back(pool.acquire());
    REQUIRE(taken.back() != nullptr);
    CHECK(is_zero(taken.back()));
    std::memset(taken.back(), 0xEE, kBytes);
  }
  CHECK(pool.acquire() == nullptr);
  CHECK(pool.out() == 3);
  CHECK(pool.complete(taken[1], 10));
  CHECK(pool.complete(taken[0], kBytes + 99));
  std::vector<CompletedBuffer> completed;
  pool.drain_completed(completed);
  REQUIRE(completed.size() == 2);
  CHECK(completed[0].bytes == taken[1]);
  CHECK(completed[0].valid_bytes == 10);
  CHECK(completed[1].valid_bytes == kBytes);
  pool.give_back(completed[0]);
  CHECK(pool.acquire() == taken[1]);
  CHECK(is_zero(taken[1]));
}

TEST_CASE("a buffer of another client, or one given twice, is not taken") {
  BufferPool pool(kBytes, 2);
  std::uint8_t* const ours = pool.acquire();
  std::vector<std::uint8_t> theirs(kBytes);
  CHECK_FALSE(pool.complete(theirs.data(), 8));
  CHECK_FALSE(pool.complete(ours + 8, 8));
  CHECK_FALSE(pool.complete(nullptr, 0));
  CHECK_FALSE(pool.complete(ours + kBytes, 8));  // ours, but not out
  CHECK(pool.complete(ours, 8));
  CHECK_FALSE(pool.complete(ours, 8));
  CHECK(pool.is_scratch(pool.scratch()));
  CHECK_FALSE(pool.complete(pool.scratch(), 8));
}

TEST_CASE("threads that take and complete, and a worker that gives back, never share a buffer") {
  BufferPool pool(kBytes, 8);
  pool.prepare(4);
  std::atomic<bool> is_done{false};
  std::atomic<int> dirty{0};
  std::atomic<int> declined{0};
  std::thread worker([&] {
    std::vector<CompletedBuffer> completed;
    while (!is_done || pool.out() > 0) {
      completed.clear();
      pool.drain_completed(completed);
      for (const CompletedBuffer& buffer : completed) pool.give_back(buffer);
    }
  });
  std::vector<std::thread> launchers;
  for (std::uint8_t number = 1; number <= 3; ++number) {
    launchers.emplace_back([&, number] {
      for (int times = 0; times < 5'000; ++times) {
        std::uint8_t* const buffer = pool.acquire();
        if (buffer == nullptr) {
          ++declined;
          continue;
        }
        dirty += !is_zero(buffer);
        std::memset(buffer, number, 64);
        std::this_thread::yield();
        dirty += std::count(buffer, buffer + 64, number) != 64;
        pool.complete(buffer, 64);
      }
    });
  }
  for (std::thread& launcher : launchers) launcher.join();
  is_done = true;
  worker.join();
  CHECK(dirty == 0);
  CHECK(pool.out() == 0);
}
