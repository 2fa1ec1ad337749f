#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "otel_straggler/threads.hpp"

using namespace otel_straggler;

namespace {

// All its numbers say the same, so that a mixture of two frames is noticed.
Frame alike(std::uint64_t number) {
  Frame frame{};
  frame.span = frame.step_span = number;
  frame.start_ns = frame.step = frame.tokens = frame.microbatch = static_cast<std::int64_t>(number);
  frame.section = frame.phase = frame.epoch = static_cast<std::uint32_t>(number);
  return frame;
}

bool is_whole(const Frame& frame) {
  const auto number = static_cast<std::int64_t>(frame.span);
  return frame.step_span == frame.span && frame.start_ns == number && frame.step == number &&
         frame.tokens == number && frame.microbatch == number && frame.section == frame.span &&
         frame.epoch == frame.span;
}

}  // namespace

TEST_CASE("the innermost frame is published, as deep as frames are published") {
  const auto slot = std::make_unique<ThreadSlot>();
  ThreadStack stack(slot.get(), 1);
  CHECK_FALSE(innermost(*slot));
  for (std::uint64_t depth = 1; depth <= 100; ++depth) {
    REQUIRE(stack.push(alike(depth)));
    CHECK(innermost(*slot)->span == (depth < kPublishedFrames ? depth : kPublishedFrames));
    CHECK(stack.at(stack.depth() - 1).span == depth);
  }
  for (std::uint64_t depth = 100; depth > 0; --depth) {
    CHECK(stack.at(stack.depth() - 1).span == depth);
    stack.remove(stack.depth() - 1);
  }
  CHECK_FALSE(innermost(*slot));
}

TEST_CASE("a frame below others is removed, within and beyond what is published") {
  ThreadStack stack(nullptr, 1);
  CHECK_FALSE(stack.is_published());
  for (std::uint64_t span = 0; span < 40; ++span) stack.push(alike(span));
  stack.remove(35);
  stack.remove(10);
  CHECK(stack.depth() == 38);
  CHECK(stack.at(9).span == 9);
  CHECK(stack.at(10).span == 11);
  CHECK(stack.at(33).span == 34);
  CHECK(stack.at(34).span == 36);
  CHECK(stack.at(37).span == 39);
}

TEST_CASE("runs that never end are forgotten, the outermost first") {
  ThreadStack stack(nullptr, 1);
  for (std::uint64_t span = 0; span <= kMaxOpen; ++span) stack.push(alike(span));
  CHECK(stack.depth() == kMaxOpen / 2 + 1);
  CHECK(stack.at(0).span == kMaxOpen / 2);
  CHECK(stack.at(stack.depth() - 1).span == kMaxOpen);
}

TEST_CASE("places are given back, and there may be fewer of them than threads") {
  std::vector<ThreadSlot> slots(2);
  std::atomic<std::uint64_t> used{0};
  ThreadTable table(slots.data(), 2, used);
  ThreadSlot* first = table.acquire(1, 101);
  REQUIRE(first != nullptr);
  REQUIRE(table.acquire(2, 102) != nullptr);
  CHECK(table.acquire(3, 103) == nullptr);
  CHECK(table.find(1) == first);
  ThreadTable::release(*first);
  CHECK(table.find(1) == nullptr);
  CHECK(table.acquire(4, 104) == first);
}

TEST_CASE("whoever looks while the stack changes sees whole frames") {
  constexpr int kWanted = 1'000'000;
  const auto slot = std::make_unique<ThreadSlot>();
  std::atomic<bool> is_enough{false};
  std::thread owner([&] {
    ThreadStack stack(slot.get(), 1);
    for (std::uint64_t number = 0; !is_enough.load(std::memory_order_relaxed);) {
      for (int at = 0; at < 4; ++at) stack.push(alike(++number % 1'000'000));
      stack.remove(1);
      while (stack.depth() > 0) stack.remove(stack.depth() - 1);
    }
  });
  int seen = 0;
  int mixed = 0;
  while (seen < kWanted) {
    const auto frame = innermost(*slot);
    if (!frame) continue;
    ++seen;
    mixed += !is_whole(*frame);
  }
  is_enough.store(true);
  owner.join();
  CHECK(mixed == 0);
}

TEST_CASE("a run knows what its thread has waited since it began, wherever its frame has moved") {
  ThreadStack stack(nullptr, 1);
  for (std::uint64_t span = 0; span < 40; ++span) {
    stack.push(alike(span));
    stack.add_wait(1);
  }
  CHECK(stack.waited_ns() == 40);
  for (const std::size_t place : {0U, 31U, 32U, 39U}) CHECK(stack.waited_in(place) == 40 - place);
  stack.remove(10);
  CHECK(stack.waited_in(9) == 31);
  CHECK(stack.waited_in(10) == 29);
  CHECK(stack.waited_in(31) == 8);  // it was not published before
  CHECK(stack.waited_in(38) == 1);
}

TEST_CASE("a place on the stack that is used again forgets what was waited in it") {
  ThreadStack stack(nullptr, 1);
  stack.push(alike(1));
  stack.add_wait(7);
  stack.remove(0);
  stack.push_published({});
  CHECK(stack.waited_in(0) == 0);
  stack.add_wait(2);
  CHECK(stack.waited_in(0) == 2);
}

TEST_CASE("what is not timed is remembered until it ends, among executions that are") {
  ThreadStack stack(nullptr, 1);
  const int one = 0;
  const int other = 0;
  CHECK_FALSE(stack.has_skips());
  CHECK_FALSE(stack.end_skip(&one, 7));  // began while all were timed
  stack.skip(&one);
  stack.push(alike(7));  // a newer execution of the same section, which is timed
  CHECK_FALSE(stack.end_skip(&one, 7));
  CHECK_FALSE(stack.end_skip(&other, 8));
  stack.remove(0);
  stack.skip(&other);
  CHECK(stack.end_skip(&one, 7));  // below another: coroutines interleave
  CHECK_FALSE(stack.end_skip(&one, 7));
  CHECK(stack.end_skip(&other, 8));
  CHECK_FALSE(stack.has_skips());
}

TEST_CASE("what is never ended does not fill the memory") {
  ThreadStack stack(nullptr, 1);
  const int one = 0;
  for (std::size_t at = 0; at < 3 * kMaxOpen; ++at) stack.skip(&one);
  std::size_t remembered = 0;
  while (stack.end_skip(&one, 7)) ++remembered;
  CHECK(remembered <= kMaxOpen);
  CHECK(remembered >= kMaxOpen / 2);
}
