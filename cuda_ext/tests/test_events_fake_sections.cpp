// Sections of several shapes, timed by events on the fake driver.
#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "faked_events.hpp"

using namespace faked_events;

TEST_CASE("events: a run has the time of its stream between its two ends, and nothing else") {
  Process process;
  fake_cuda_launch(stream_now, 7'000);  // before it
  process.run(1, 5'000);
  fake_cuda_launch(stream_now, 9'000);  // after it
  CHECK(process.ready().empty());       // the GPU has not come so far
  fake_cuda_advance(11'999);
  CHECK(process.ready().empty());
  fake_cuda_advance(1);
  CHECK(is_timed(process.one(), 5'000));
  CHECK(process.timer->state().runs.timed == 1);
  CHECK(process.timer->state().pending == 0);
}

TEST_CASE("events: runs inside runs have their own times, and come out in order") {
  Process process;
  process.begin(1);
  fake_cuda_launch(stream_now, 1'000);
  process.run(2, 20'000);
  process.run(3, 300'000);
  fake_cuda_launch(stream_now, 4'000'000);
  process.end();
  CHECK(process.ready().empty());
  fake_cuda_advance(321'000);
  std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 2);
  CHECK((records[0].span == 2 && is_timed(records[0], 20'000)));
  CHECK((records[1].span == 3 && is_timed(records[1], 300'000)));
  fake_cuda_advance(4'000'000);
  const Record outer = process.one();
  CHECK((outer.span == 1 && is_timed(outer, 4'321'000)));
}

TEST_CASE("events: a run that is not ready holds back later ones, whose numbers are kept") {
  Process process;
  void* const slow = stream_now;
  void* const fast = fake_cuda_stream(process.context, 0);
  process.run(1, 1'000'000);
  stream_now = fast;
  process.run(2, 10);
  process.run(3, 20);
  fake_cuda_advance(100);
  CHECK(process.ready().empty());
  CHECK(process.timer->state().pending == 1);  // the events of the other two are free again
  fake_cuda_advance(1'000'000);
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 3);
  CHECK(is_timed(records[0], 1'000'000));
  CHECK(is_timed(records[1], 10));
  CHECK(is_timed(records[2], 20));
  stream_now = slow;
}

TEST_CASE("events: of a stream that is behind only the oldest event is asked about") {
  Process process;
  for (std::uint64_t span = 1; span <= 10; ++span) process.run(span, 1'000);
  const std::uint64_t asked = fake_cuda_get("cuEventQuery");
  CHECK(process.ready().empty());
  CHECK(fake_cuda_get("cuEventQuery") == asked + 1);
  fake_cuda_advance(3'000);
  CHECK(process.ready().size() == 3);
  CHECK(fake_cuda_get("cuEventQuery") == asked + 5);
}

TEST_CASE("events: a driver that needs several looks is asked again, and never waited for") {
  Process process;
  fake_cuda_set("not_ready", 3);
  process.run(1, 10);
  fake_cuda_advance(10);
  for (int examined = 0; examined < 3; ++examined) CHECK(process.ready().empty());
  CHECK(is_timed(process.one(), 10));
}

TEST_CASE("events: without work a run took no time, which is a number") {
  Process process;
  process.run(1, 0);
  CHECK(is_timed(process.one(), 0));
}

TEST_CASE("events: coroutines interleave; each run has its own time") {
  Process process;
  process.timer->begun(true, 1, 1);
  fake_cuda_launch(stream_now, 100);
  process.timer->begun(true, 2, 1);
  fake_cuda_launch(stream_now, 1'000);
  process.timer->ended(true, 1, 2, 1);
  fake_cuda_launch(stream_now, 10'000);
  process.timer->ended(true, 2, kNoSpan, 0);
  fake_cuda_advance(20'000);
  Record runs[2] = {};
  for (std::uint64_t at = 0; at < 2; ++at) {
    runs[at].span = at + 1;
    runs[at].start_ns = runs[at].end_ns = monotonic_ns();
  }
  process.timer->add(runs, 2);
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 2);
  CHECK(is_timed(records[0], 1'100));
  CHECK(is_timed(records[1], 11'000));
}

TEST_CASE("events: a run that ends on another stream, device or thread is missing, and counted") {
  Process process;
  void* const mine = stream_now;
  process.begin(1);
  stream_now = fake_cuda_stream(process.context, 0);
  process.end();
  CHECK(is_missing(process.one()));
  stream_now = mine;
  process.begin(2);
  fake_cuda_set_current(fake_cuda_context(1));
  stream_now = nullptr;
  process.end();
  CHECK(is_missing(process.one()));
  fake_cuda_set_current(nullptr);
  process.begin(3);
  fake_cuda_set_current(process.context);
  stream_now = mine;
  process.end();
  CHECK(is_off(process.one()));  // it began where no GPU was used
  process.begin(4);
  fake_cuda_set_current(nullptr);
  process.end();
  CHECK(is_missing(process.one()));
  fake_cuda_set_current(process.context);
  process.begin(5);
  std::thread([&] {
    fake_cuda_set_current(process.context);
    stream_now = mine;
    process.end();
  }).join();
  CHECK(is_missing(process.one()));
  CHECK(process.count(Outcome::kMoved) == 4);
  process.run(6, 70);
  fake_cuda_advance(70);
  CHECK(is_timed(process.one(), 70));
}

TEST_CASE("events: each device that is current is timed on its own current stream") {
  Process process;
  void* const second = fake_cuda_context(1);
  process.begin(1);
  fake_cuda_launch(stream_now, 100);
  void* const mine = stream_now;
  fake_cuda_set_current(second);
  stream_now = nullptr;  // the legacy stream of that device
  process.run(2, 2'000);
  fake_cuda_set_current(process.context);
  stream_now = mine;
  process.end();
  fake_cuda_advance(2'000);
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 2);
  CHECK(is_timed(records[0], 2'000));
  CHECK(is_timed(records[1], 100));
}

TEST_CASE("events: where one device is timed, runs on another are missing") {
  EventSettings settings;
  settings.device = 1;
  Process process(settings);
  process.run(1, 100);
  CHECK(is_missing(process.one()));
  CHECK(process.count(Outcome::kElsewhere) == 1);
  fake_cuda_set_current(fake_cuda_context(1));
  stream_now = nullptr;
  process.run(2, 200);
  fake_cuda_advance(200);
  CHECK(is_timed(process.one(), 200));
}

TEST_CASE("events: a thread that uses no GPU has no GPU time, and nothing is asked of the driver") {
  Process process;
  const std::uint64_t created = fake_cuda_get("cuEventCreate");
  std::thread([&] {
    process.run(1, 0);
  }).join();
  CHECK(is_off(process.one()));
  CHECK(process.count(Outcome::kNoContext) == 1);
  CHECK(process.timer->state().runs.missing == 0);
  CHECK(fake_cuda_get("cuEventRecord") == 0);
  CHECK(fake_cuda_get("cuEventCreate") - created <= 64);  // ahead, for the first thread
}

TEST_CASE("events: without torch it is the legacy stream that is timed") {
  Process before;
  const Driver driver = load_driver(kDriver);
  EventTimer& timer = EventTimer::make(driver, Host(), EventSettings());
  REQUIRE(timer.start() == "");
  Record run{};
  run.span = 1;
  run.start_ns = monotonic_ns();
  timer.begun(true, 1, 1);
  fake_cuda_launch(nullptr, 1'234);
  timer.ended(true, 1, kNoSpan, 0);
  run.end_ns = monotonic_ns();
  timer.add(&run, 1);
  fake_cuda_advance(1'234);
  std::vector<Record> records;
  timer.drain_ready(monotonic_ns(), records);
  REQUIRE(records.size() == 1);
  CHECK(is_timed(records[0], 1'234));
  timer.stop(0);
}

TEST_CASE("events: which stream is current is not known: missing, and the next run is timed") {
  Process process;
  knows_stream = false;
  process.run(1, 10);
  CHECK(is_missing(process.one()));
  CHECK(process.count(Outcome::kNoStream) == 1);
  knows_stream = true;
  process.begin(2);
  knows_stream = false;
  process.end();
  CHECK(is_missing(process.one()));
  knows_stream = true;
  process.run(3, 10);
  fake_cuda_advance(100);
  CHECK(is_timed(process.one(), 10));
}

TEST_CASE("events: runs that never end do not keep events forever") {
  EventSettings settings;
  settings.max_pairs = 200;
  Process process(settings);
  for (std::uint64_t span = 1; span <= 1'000; ++span) process.timer->begun(true, span, 1);
  process.run(2'000, 5);
  fake_cuda_advance(5);
  CHECK(is_timed(process.one(), 5));
  process.timer->ended(true, 1'000, kNoSpan, 0);  // of the newest that are open it is known
  Record run{};
  run.span = 1'000;
  run.start_ns = run.end_ns = monotonic_ns();
  process.timer->add(&run, 1);
  CHECK(is_timed(process.one(), 5));
}

TEST_CASE("events: after the first runs no event is made any more, on no thread") {
  Process process;
  for (std::uint64_t span = 1; span <= 100; ++span) process.run(span, 1);
  fake_cuda_advance(1'000);
  CHECK(process.ready().size() == 100);
  static_cast<void>(process.ready());
  const std::uint64_t made = fake_cuda_get("events");
  for (std::uint64_t span = 101; span <= 1'000; ++span) {
    process.run(span, 1);
    fake_cuda_advance(10);
    if (span % 20 == 0) CHECK(process.ready().size() == 20);
  }
  CHECK(fake_cuda_get("events") == made);
  CHECK(made == 2 * process.timer->state().pairs_made);
}

TEST_CASE("events: the exporter makes events ahead, so that training seldom does") {
  Process process;
  const std::uint64_t at_start = fake_cuda_get("events");
  CHECK(at_start > 0);
  static_cast<void>(process.ready());
  const std::uint64_t ahead = fake_cuda_get("events");
  CHECK(ahead > at_start);
  for (std::uint64_t span = 1; span <= 30; ++span) process.run(span, 1);
  CHECK(fake_cuda_get("events") == ahead);
}
