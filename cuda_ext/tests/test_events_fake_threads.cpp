// Recording, reading, stopping and asking, all at once: for the sanitizers.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "faked_events.hpp"

using namespace faked_events;

namespace {

// Runs inside runs, each with work of its own length; waits while so many are not read.
void train(EventTimer& timer, void* context, std::uint64_t first_span, std::uint64_t runs,
           std::uint64_t max_waiting = 100'000) {
  fake_cuda_set_current(context);
  stream_now = fake_cuda_stream(context, 0);
  for (std::uint64_t span = first_span; span < first_span + runs; span += 2) {
    while (timer.state().waiting > max_waiting) std::this_thread::yield();
    Record pair[2] = {};
    pair[1].start_ns = monotonic_ns();
    timer.begun(true, span, 1);
    pair[0].start_ns = monotonic_ns();
    timer.begun(true, span + 1, 2);
    fake_cuda_launch(stream_now, span % 1'000);
    timer.ended(true, span + 1, span, 1);
    pair[0].end_ns = monotonic_ns();
    timer.ended(true, span, kNoSpan, 0);
    pair[1].end_ns = monotonic_ns();
    pair[0].span = span + 1;
    pair[1].span = span;
    timer.add(pair, 2);
  }
}

}  // namespace

TEST_CASE("events: four threads with 2,000 runs each and an exporter: every number is right") {
  Process process;
  fake_cuda_set("busy", 1);
  std::atomic<bool> is_done{false};
  std::vector<Record> records;
  std::thread exporter([&] {
    while (!is_done) {
      process.timer->drain_ready(monotonic_ns(), records);
      static_cast<void>(process.timer->state());
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> trainers;
  for (std::uint64_t at = 0; at < 4; ++at) {
    trainers.emplace_back(
        [&, at] { train(*process.timer, process.context, 10'000 * (at + 1), 2'000, 500); });
  }
  for (std::thread& trainer : trainers) trainer.join();
  is_done = true;
  exporter.join();
  process.timer->drain_all(true, records);
  CHECK(records.size() == 8'000);
  std::uint64_t timed = 0;
  for (const Record& record : records) {
    if (is_missing(record)) continue;
    ++timed;
    REQUIRE(is_timed(record, static_cast<std::int64_t>(record.span / 2 * 2 % 1'000)));
  }
  CHECK(timed == process.timer->state().runs.timed);
  CHECK(timed == 8'000);
  CHECK(process.count(Outcome::kUnreported) == 0);
}

TEST_CASE("events: threads that come and go use the same places and events again") {
  EventSettings settings;
  settings.max_threads = 3;
  Process process(settings);
  fake_cuda_set("busy", 1);
  std::vector<Record> records;
  for (std::uint64_t at = 1; at <= 50; ++at) {
    std::thread([&] { train(*process.timer, process.context, 1'000 * at, 10); }).join();
    process.timer->drain_ready(monotonic_ns(), records);
  }
  process.timer->drain_all(true, records);
  CHECK(records.size() == 500);
  CHECK(process.timer->state().runs.timed == 500);
  CHECK(process.timer->state().threads_left_out == 0);
  CHECK(process.timer->state().pairs_made < 150);
}

TEST_CASE("events: more threads than places are counted; their runs are missing") {
  EventSettings settings;
  settings.max_threads = 1;
  Process process(settings);
  process.run(1, 10);
  std::thread([&] {
    train(*process.timer, process.context, 2, 2);
    train(*process.timer, process.context, 4, 2);
  }).join();
  fake_cuda_advance(100'000);
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 5);
  CHECK(is_timed(records[0], 10));
  for (std::size_t at = 1; at < 5; ++at) CHECK(is_missing(records[at]));
  CHECK(process.timer->state().threads_left_out == 1);
}

TEST_CASE("events: stopping and starting again while others record") {
  Process process;
  fake_cuda_set("busy", 1);
  std::atomic<bool> is_done{false};
  std::thread trainer([&] {
    for (std::uint64_t span = 1; !is_done; span += 100) {
      train(*process.timer, process.context, span, 100);
    }
  });
  std::vector<Record> records;
  for (int times = 0; times < 50; ++times) {
    process.timer->stop(monotonic_ns());
    process.timer->drain_ready(monotonic_ns(), records);
    CHECK(process.timer->start() == "");
    process.timer->drain_ready(monotonic_ns(), records);
  }
  is_done = true;
  trainer.join();
  for (const Record& record : records) {
    if (record.gpu.state == GpuState::kTimedByEvents) {
      REQUIRE(is_timed(record, static_cast<std::int64_t>((record.span - 1) / 2 * 2 + 1) % 1'000));
    }
  }
}

TEST_CASE("events: the GPU is lost while threads record: one reason, and no crash") {
  Process process;
  fake_cuda_set("busy", 1);
  std::vector<std::thread> trainers;
  for (std::uint64_t at = 0; at < 3; ++at) {
    trainers.emplace_back([&, at] {
      for (std::uint64_t span = 1'000'000 * (at + 1) + 1; process.timer->is_on(); span += 100) {
        train(*process.timer, process.context, span, 100, 500);
      }
    });
  }
  std::vector<Record> records;
  for (int poll = 0; poll < 20; ++poll) process.timer->drain_ready(monotonic_ns(), records);
  fake_cuda_break(700);
  while (process.timer->is_on()) process.timer->drain_ready(monotonic_ns(), records);
  process.timer->drain_all(false, records);  // those that wait for a reader
  for (std::thread& trainer : trainers) trainer.join();
  process.timer->drain_ready(monotonic_ns(), records);
  CHECK_FALSE(process.timer->is_on());
  CHECK(has(process.timer->reason(), "gave 700"));
}

TEST_CASE("events: a thread that records an event while the GPU's queue is full blocks no other") {
  Process process;
  fake_cuda_set("full", 1);
  std::thread trainer([&] { train(*process.timer, process.context, 1, 2); });
  while (fake_cuda_get("inside") == 0) std::this_thread::yield();
  CHECK(process.ready().empty());  // reading, asking, stopping
  CHECK(process.timer->state().is_on);
  process.timer->turn_off();
  CHECK_FALSE(process.timer->is_on());
  const std::int64_t deadline_ns = monotonic_ns() + 20'000'000;
  process.timer->wait_for_threads(deadline_ns);
  CHECK(monotonic_ns() >= deadline_ns);  // it was waited for, until the deadline only
  fake_cuda_set("full", 0);
  process.timer->wait_for_threads(INT64_MAX);
  trainer.join();
}
