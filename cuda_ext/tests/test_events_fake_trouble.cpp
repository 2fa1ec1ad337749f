// What goes wrong with timing by events, and what is said of it.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "faked_events.hpp"

using namespace faked_events;

TEST_CASE("events: a driver that is not there, or lacks a function, is named") {
  CHECK(has(load_driver("").reason, "no CUDA driver is loaded in this process (libcuda.so.1)"));
  CHECK(has(load_driver("libc.so.6").reason, "the CUDA driver has no cuDriverGetVersion"));
  CHECK(has(load_driver("/nowhere/libcuda.so").reason, "/nowhere/libcuda.so"));
  fake_cuda_reset();
  fake_cuda_fail("cuDriverGetVersion", 999);
  CHECK(has(load_driver(kDriver).reason, "cuDriverGetVersion gave 999"));
  fake_cuda_fail("cuDriverGetVersion", 0);
  CHECK(load_driver(kDriver).version == 13'000);
}

TEST_CASE("events: a run in a graph's capture is missing, and the capture goes on unharmed") {
  Process process;
  process.begin(1);
  fake_cuda_capture(stream_now, 1);
  process.run(2, 10);
  process.end();
  process.begin(3);
  fake_cuda_capture(stream_now, 0);
  process.end();
  std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 3);
  for (const Record& record : records) CHECK(is_missing(record));
  CHECK(process.count(Outcome::kCapturing) == 3);
  CHECK(fake_cuda_get("captured") == 0);
  CHECK(fake_cuda_get("spoiled") == 0);
  process.run(4, 10);
  fake_cuda_advance(100);
  CHECK(is_timed(process.one(), 10));
}

TEST_CASE("events: a capture that somebody else invalidated is left alone until it has ended") {
  Process process;
  process.run(1, 10);
  fake_cuda_capture(stream_now, 1);
  static void* event = nullptr;  // kept: there is no call that ends one
  REQUIRE(cuEventCreate(&event, 0) == 0);
  REQUIRE(cuEventQuery(event) == 900);  // in global mode, as no code of ours does
  REQUIRE(cuEventRecord(event, stream_now) == 901);
  process.run(2, 10);
  fake_cuda_capture(stream_now, 0);
  process.run(3, 10);
  fake_cuda_advance(100);
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 3);
  CHECK(is_timed(records[0], 10));
  CHECK(is_missing(records[1]));
  CHECK(is_timed(records[2], 10));
  CHECK(process.count(Outcome::kCapturing) == 1);
}

TEST_CASE("events: reading while another thread captures does not end that capture") {
  Process process;
  process.run(1, 10);
  fake_cuda_advance(10);
  void* const other = fake_cuda_stream(process.context, 0);
  fake_cuda_capture(other, 1);
  CHECK(is_timed(process.one(), 10));
  std::thread exporter([&] {
    fake_cuda_launch(stream_now, 0);
    static_cast<void>(process.ready());
  });
  exporter.join();
  CHECK(fake_cuda_get("spoiled") == 0);
  fake_cuda_capture(other, 0);
}

TEST_CASE("events: the legacy stream is left alone while a stream that waits for it is captured") {
  Process process;
  stream_now = nullptr;
  void* const other = fake_cuda_stream(process.context, 1);
  fake_cuda_capture(other, 1);
  process.run(1, 0);
  CHECK(is_missing(process.one()));
  CHECK(process.count(Outcome::kCapturing) == 1);
  CHECK(fake_cuda_get("spoiled") == 0);
  fake_cuda_capture(other, 0);
}

TEST_CASE("events: more runs than events are missing, not waited for; their places come back") {
  EventSettings settings;
  settings.max_pairs = 16;
  Process process(settings);
  for (std::uint64_t span = 1; span <= 20; ++span) process.run(span, 1);
  fake_cuda_advance(100);
  std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 20);
  for (std::size_t at = 0; at < 20; ++at) CHECK(is_missing(records[at]) == (at >= 16));
  CHECK(process.count(Outcome::kOverrun) == 4);
  CHECK(process.timer->state().pairs_made == 16);
  for (std::uint64_t span = 21; span <= 36; ++span) process.run(span, 1);
  fake_cuda_advance(100);
  records = process.ready();
  REQUIRE(records.size() == 16);
  for (const Record& record : records) CHECK(is_timed(record, 1));
}

TEST_CASE("events: no reader for a long time: nothing grows, and what comes then is in order") {
  EventSettings settings;
  settings.max_pairs = 16;
  Process process(settings);
  for (std::uint64_t span = 1; span <= 10'000; ++span) {
    process.timer->begun(true, span, 1);
    process.timer->ended(true, span, kNoSpan, 0);
  }
  static_cast<void>(process.ready());
  CHECK(process.timer->state().pairs_made == 16);
  process.run(20'000, 7);
  fake_cuda_advance(7);
  CHECK(is_timed(process.one(), 7));
}

TEST_CASE("events: all threads together have so many events and no more") {
  EventSettings settings;
  settings.max_pairs_in_all = 20;
  Process process(settings);
  for (std::uint64_t span = 1; span <= 30; ++span) process.run(span, 1);
  fake_cuda_advance(100);
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 30);
  CHECK(process.timer->state().runs.timed == 20);
  CHECK(process.count(Outcome::kOverrun) == 10);
  CHECK(process.timer->state().pairs_made == 20);
}

TEST_CASE("events: what the GPU has not done after two seconds is missing, and late numbers stay out") {
  Process process;
  process.run(1, 1'000);
  process.run(2, 1'000);
  CHECK(process.ready(1'900'000'000).empty());
  std::vector<Record> records = process.ready(kLong);
  REQUIRE(records.size() == 2);
  CHECK(is_missing(records[0]));
  CHECK(process.count(Outcome::kLate) == 2);
  fake_cuda_advance(10'000);
  CHECK(process.ready(kLong).empty());
  CHECK(process.timer->state().pending == 0);
  process.run(3, 30);
  fake_cuda_advance(30);
  CHECK(is_timed(process.one(), 30));
}

TEST_CASE("events: events that the GPU never comes to are used again after two seconds") {
  EventSettings settings;
  settings.max_pairs = 8;
  Process process(settings);
  for (std::uint64_t span = 1; span <= 8; ++span) process.run(span, 1'000'000);
  static_cast<void>(process.ready());
  CHECK(process.timer->state().pending == 8);
  CHECK(process.ready(kLong).size() == 8);
  CHECK(process.timer->state().pending == 0);
  stream_now = fake_cuda_stream(process.context, 0);
  process.run(9, 10);
  fake_cuda_advance(10);
  CHECK(is_timed(process.one(), 10));
}

TEST_CASE("events: a code about one run makes that run missing; timing goes on") {
  const char* const functions[] = {"cuEventRecord", "cuEventQuery", "cuEventElapsedTime",
                                   "cuStreamIsCapturing"};
  for (const char* function : functions) {
    for (const Code code : {1, 2, 400, 900, 901, 907}) {
      CAPTURE(function);
      CAPTURE(code);
      Process process;
      fake_cuda_fail(function, code);
      process.run(1, 0);
      CHECK(is_missing(process.one()));
      const bool is_capture = code >= 900;
      CHECK(process.count(is_capture ? Outcome::kCapturing : Outcome::kRefused) == 1);
      fake_cuda_fail(function, 0);
      CHECK(process.timer->is_on());
      process.run(2, 5);
      fake_cuda_advance(5);
      CHECK(is_timed(process.one(), 5));
    }
  }
}

TEST_CASE("events: no memory for events is a reason at the start, and a miss later") {
  Process process;
  const Driver driver = load_driver(kDriver);
  Host host;
  host.current_stream = current_stream;
  EventTimer& timer = EventTimer::make(driver, host, EventSettings());
  fake_cuda_fail("cuEventCreate", 2);
  CHECK(has(timer.start(), "cuEventCreate gave 2: the GPU or the host has no memory"));
  CHECK_FALSE(timer.is_on());
  for (std::uint64_t span = 1; span <= 10; ++span) process.run(span, 0);
  CHECK(process.ready().size() == 10);
  CHECK(process.count(Outcome::kRefused) == 2);  // 8 were made at the start
  fake_cuda_fail("cuEventCreate", 0);
  CHECK(timer.start() == "");
  timer.stop(0);
}

TEST_CASE("events: an error that ends the GPU ends timing, with its reason; training goes on") {
  struct Case {
    Code code;
    const char* words;
  };
  const Case cases[] = {{700, "a kernel of the program failed"},
                        {719, "a kernel of the program failed"},
                        {214, "look at dmesg"},
                        {709, "the CUDA context has gone"},
                        {999, "unexpected"}};
  for (const Case& one : cases) {
    CAPTURE(one.code);
    Process process;
    process.run(1, 10);
    process.run(2, 10);
    process.begin(3);
    fake_cuda_advance(10);
    fake_cuda_break(one.code);
    const std::vector<Record> records = process.ready();
    REQUIRE(records.size() == 2);
    CHECK(is_missing(records[0]));
    CHECK(is_missing(records[1]));
    CHECK_FALSE(process.timer->is_on());
    CHECK(has(process.timer->reason(), "cuEventQuery gave " + std::to_string(one.code)));
    CHECK(has(process.timer->reason(), one.words));
    const std::uint64_t calls = fake_cuda_get("cuEventQuery") + fake_cuda_get("cuEventRecord");
    process.end();
    process.run(4, 10);
    std::vector<Record> later = process.ready();
    REQUIRE(later.size() == 2);
    CHECK(is_missing(later[0]));
    CHECK(is_off(later[1]));
    CHECK(fake_cuda_get("cuEventQuery") + fake_cuda_get("cuEventRecord") == calls);
    CHECK(process.timer->state().failure.code == one.code);
  }
}

TEST_CASE("events: an error that training's own thread meets ends timing there") {
  Process process;
  process.run(1, 10);
  fake_cuda_break(700);
  process.run(2, 10);
  CHECK_FALSE(process.timer->is_on());
  CHECK(has(process.timer->reason(), "cuStreamIsCapturing gave 700"));
  const std::vector<Record> records = process.ready();
  CHECK(fake_cuda_get("cuEventQuery") == 0);  // the driver is left alone from then on
  REQUIRE(records.size() == 2);
  CHECK(is_missing(records[0]));
  CHECK(is_missing(records[1]));
}

TEST_CASE("events: a context that has gone ends timing; a new one may be timed, by new events") {
  Process process;
  process.run(1, 10);
  fake_cuda_advance(10);
  fake_cuda_destroy(process.context);
  CHECK(is_missing(process.one()));
  CHECK(has(process.timer->reason(), "the CUDA context has gone"));
  process.context = fake_cuda_context(0);
  fake_cuda_set_current(process.context);
  stream_now = fake_cuda_stream(process.context, 0);
  REQUIRE(process.timer->start() == "");
  CHECK(process.timer->reason() == "");
  process.run(2, 20);
  fake_cuda_advance(20);
  CHECK(is_timed(process.one(), 20));
  const std::uint64_t pushed = fake_cuda_get("cuCtxPushCurrent");
  process.run(3, 30);
  fake_cuda_advance(30);
  CHECK(is_timed(process.one(), 30));
  CHECK(fake_cuda_get("cuCtxPushCurrent") == pushed + 1);  // the lost one is not touched
}

TEST_CASE("events: a stream that was destroyed makes its runs missing, and only those") {
  Process process;
  void* const gone = fake_cuda_stream(process.context, 0);
  void* const mine = stream_now;
  stream_now = gone;
  process.begin(1);
  fake_cuda_destroy_stream(gone);
  process.end();
  stream_now = mine;
  process.run(2, 10);
  fake_cuda_advance(10);
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 2);
  CHECK(is_missing(records[0]));
  CHECK(is_timed(records[1], 10));
}

TEST_CASE("events: where CUDA is not in use yet, or not any more, runs have no GPU time") {
  for (const Code code : {3, 4}) {
    Process process;
    fake_cuda_fail("cuCtxGetCurrent", code);
    process.run(1, 10);
    CHECK(is_off(process.one()));
    CHECK(process.timer->is_on());
    fake_cuda_fail("cuCtxGetCurrent", 0);
    process.run(2, 10);
    fake_cuda_advance(20);
    CHECK(is_timed(process.one(), 10));
  }
}

TEST_CASE("events: a time below zero is no time") {
  Process process;
  fake_cuda_set("backward", 1);
  process.run(1, 10);
  fake_cuda_advance(10);
  CHECK(is_missing(process.one()));
}

TEST_CASE("events: stopped and started again: runs across are missing, runs between have none") {
  Process process;
  process.run(1, 10);
  process.begin(2);
  fake_cuda_advance(10);
  process.timer->stop(monotonic_ns() + kLong);
  process.end();
  process.run(3, 10);
  process.begin(4);
  REQUIRE(process.timer->start() == "");
  process.end();
  process.run(5, 50);
  fake_cuda_advance(100);
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 5);
  CHECK(is_timed(records[0], 10));
  CHECK(is_missing(records[1]));
  CHECK(is_off(records[2]));
  CHECK(is_missing(records[3]));
  CHECK(is_timed(records[4], 50));
}

TEST_CASE("events: starting and stopping often makes no more events") {
  Process process;
  std::uint64_t span = 0;
  std::uint64_t made = 0;
  for (int times = 0; times < 50; ++times) {
    for (int open = 0; open < 20; ++open) process.timer->begun(true, ++span, 1);
    static_cast<void>(process.ready());
    process.timer->stop(0);
    REQUIRE(process.timer->start() == "");
    if (times == 5) made = fake_cuda_get("events");
  }
  CHECK(fake_cuda_get("events") == made);
}

TEST_CASE("events: at the end all runs come out, those that are ready with their numbers") {
  Process process;
  process.run(1, 10);
  fake_cuda_advance(10);
  process.run(2, 1'000);
  std::vector<Record> records;
  process.timer->drain_all(false, records);
  REQUIRE(records.size() == 2);
  CHECK(is_timed(records[0], 10));
  CHECK(is_missing(records[1]));
  CHECK(process.timer->state().waiting == 0);
}

TEST_CASE("events: a forked child is left alone, and its parent goes on") {
  Process process;
  process.run(1, 10);
  const pid_t child = ::fork();
  if (child == 0) {
    process.run(2, 10);
    std::vector<Record> records = process.ready();
    const bool is_well = fake_cuda_get("in_child") == 0 && !process.timer->is_on() &&
                         has(process.timer->start(), "forked child") && records.size() == 2 &&
                         is_off(records[1]);
    process.timer->stop(monotonic_ns() + kLong);
    ::_exit(is_well ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  fake_cuda_advance(10);
  CHECK(is_timed(process.one(), 10));
}
