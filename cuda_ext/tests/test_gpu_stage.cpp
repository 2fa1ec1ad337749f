#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "made_timer.hpp"
#include "otel_straggler/gpu_boundary.hpp"
#include "otel_straggler/gpu_stage.hpp"

using namespace otel_straggler;

namespace {

constexpr std::int64_t kLong = 10 * kSecondNs;

// A stage, and runs that are put into it.
struct Line {
  GpuTimers timers;
  std::unique_ptr<GpuStage> stage;
  std::uint64_t last_span = 0;

  explicit Line(GpuTimer* timer = nullptr) {
    if (timer != nullptr) timers.set(timer);
    stage = std::make_unique<GpuStage>(timers);
  }

  Record run(std::int64_t start_ns, std::int64_t end_ns, std::uint32_t flags = 0) {
    Record record{};
    record.span = ++last_span;
    record.start_ns = start_ns;
    record.end_ns = end_ns;
    record.flags = flags;
    return record;
  }

  // One that begins and ends now.
  void put(std::uint32_t flags = 0) {
    const std::int64_t start_ns = monotonic_ns();
    put(run(start_ns, monotonic_ns(), flags));
  }
  void put(const Record& record) { stage->put(&record, 1); }

  // Span numbers and states of what is ready so much later.
  std::vector<std::pair<std::uint64_t, GpuState>> ready(std::int64_t later_ns = 0) {
    std::vector<Record> records;
    stage->drain_ready(monotonic_ns() + later_ns, records);
    return outcomes_of(records);
  }

  std::vector<std::pair<std::uint64_t, GpuState>> all(bool is_complete) {
    std::vector<Record> records;
    stage->drain_all(is_complete, records);
    return outcomes_of(records);
  }

  static std::vector<std::pair<std::uint64_t, GpuState>> outcomes_of(
      const std::vector<Record>& records) {
    std::vector<std::pair<std::uint64_t, GpuState>> outcomes;
    for (const Record& record : records) outcomes.emplace_back(record.span, record.gpu.state);
    return outcomes;
  }
};

// One that waited so long in collectives.
Record waited(Record record, std::int64_t waited_ns) {
  if (record.end_ns == 0) record.end_ns = record.start_ns + 100;
  record.gpu = waited_slot(waited_ns, record.start_ns, record.end_ns);
  return record;
}

using Outcomes = std::vector<std::pair<std::uint64_t, GpuState>>;
constexpr GpuState kOff = GpuState::kOff;
constexpr GpuState kTimed = GpuState::kTimed;
constexpr GpuState kMissing = GpuState::kMissing;
constexpr GpuState kWaited = GpuState::kWaited;

}  // namespace

TEST_CASE("where the GPU is not timed the stage is not needed, and holds nothing back") {
  Line line;
  CHECK_FALSE(line.stage->is_needed());
  line.put();
  CHECK(line.ready() == Outcomes{{1, kOff}});
  CHECK_FALSE(line.stage->is_waiting());
}

TEST_CASE("runs come out in their order, untimed ones among the others") {
  made::Timer timer;
  timer.set_fast(false);
  Line line(&timer);
  line.put();
  line.put(kHostOnly);
  line.put();
  line.put(kHostOnly);
  CHECK(line.ready().empty());
  CHECK(line.stage->is_waiting());
  timer.set_fast(true);
  CHECK(line.ready() == Outcomes{{1, kTimed}, {2, kOff}, {3, kTimed}, {4, kOff}});
  line.put(kHostOnly);
  CHECK(line.ready() == Outcomes{{5, kOff}});
  CHECK_FALSE(line.stage->is_waiting());
  CHECK(line.stage->missing() == 0);
}

TEST_CASE("a run that was open at a change is missing; one that had ended had no timer") {
  made::Timer timer;
  Line line;
  const std::int64_t before_ns = monotonic_ns();
  const Record ended = line.run(before_ns, monotonic_ns());
  line.timers.set(&timer);
  line.put(ended);
  line.put(line.run(before_ns, monotonic_ns()));
  line.put();
  CHECK(line.ready(kLong) == Outcomes{{1, kOff}, {2, kMissing}, {3, kTimed}});
  const std::int64_t open_ns = monotonic_ns();
  line.timers.set(nullptr);
  line.put(line.run(open_ns, monotonic_ns()));
  line.put();
  CHECK(line.ready(kLong) == Outcomes{{4, kMissing}, {5, kOff}});
  CHECK(line.stage->missing() == 2);
}

TEST_CASE("a timer that was replaced may still give its numbers; the next one's runs wait") {
  made::Timer first;
  made::Timer second;
  first.set_fast(false);
  Line line(&first);
  line.put();
  line.timers.set(&second);
  line.put();
  CHECK(line.ready().empty());
  CHECK(second.waiting() == 0);
  CHECK(second.examined() == 1);  // it reads its events meanwhile
  SUBCASE("it does") {
    first.set_fast(true);
    CHECK(line.ready() == Outcomes{{1, kTimed}});
    CHECK(line.ready(GpuStage::kPatienceNs / 2) == Outcomes{{2, kTimed}});
    CHECK(line.stage->missing() == 0);
  }
  SUBCASE("it does not") {
    CHECK(line.ready(kLong) == Outcomes{{1, kMissing}, {2, kTimed}});
    CHECK(line.stage->missing() == 1);
  }
  SUBCASE("the process ends") {
    CHECK(line.all(true) == Outcomes{{1, kTimed}, {2, kTimed}});
  }
  SUBCASE("a flush cannot wait") {
    CHECK(line.all(false) == Outcomes{{1, kMissing}, {2, kMissing}});
  }
  CHECK_FALSE(line.stage->is_waiting());
}

TEST_CASE("what is held for the next timer is bounded") {
  made::Timer first;
  first.set_fast(false);
  Line line(&first);
  line.put();
  line.timers.set(nullptr);
  std::size_t out = 0;
  for (int at = 0; at < 70'000; ++at) {
    line.put();
    if (at % 1'000 == 0) out += line.ready().size();
  }
  CHECK(out > 60'000);
  out += line.ready(kLong).size();
  CHECK(out == 70'001);
}

TEST_CASE("many changes between two polls: every run comes out once") {
  made::Timer timers[3];
  Line line(&timers[0]);
  for (int round = 0; round < 1'000; ++round) {
    line.put();
    line.timers.set(round % 4 == 3 ? nullptr : &timers[round % 3]);
  }
  std::set<std::uint64_t> spans;
  for (int poll = 0; poll < 1'000; ++poll) {
    for (const auto& [span, state] : line.ready(kLong)) CHECK(spans.insert(span).second);
  }
  CHECK(spans.size() == 1'000);
}

TEST_CASE("losses are those since the stage was made, of all timers that had a turn") {
  made::Timer first;
  made::Timer second;
  first.lose(100);
  Line line(&first);
  first.lose(1);
  line.timers.set(&second);
  second.lose(10);
  line.put();
  line.ready(kLong);
  CHECK(line.stage->losses().lost == 11);
  line.timers.set(&first);
  first.lose(1'000);
  line.put();
  line.ready(kLong);
  CHECK(line.stage->losses().lost == 1'011);
}

TEST_CASE("that nothing more is launched holds until the next change, and for one session") {
  made::Timer timer;
  Line line(&timer);
  line.timers.set_complete(true);
  CHECK(line.stage->is_complete());
  line.timers.set(&timer);  // the same again: another session begins
  CHECK_FALSE(line.stage->is_complete());
  line.timers.set_complete(true);
  const GpuStage of_next_session(line.timers);
  CHECK_FALSE(of_next_session.is_complete());
}

TEST_CASE("timers may change while sections run: no run is lost, none is given away unreported") {
  constexpr int kThreads = 3;
  constexpr int kRuns = 3'000;
  made::Timer timers[2];
  GpuTimers current;
  Block block;
  REQUIRE(block.open() == 0);
  Recorder recorder(block);
  recorder.enable(0, {}, monotonic_ns());
  GpuStage stage(current);
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (std::uint32_t number = 1; number <= kThreads; ++number) {
    threads.emplace_back([&, number] {
      const auto stack = recorder.enter_thread(number);
      for (int at = 0; at < kRuns; ++at) {
        const std::uint64_t span = recorder.next_span(*stack);
        recorder.begin(*stack, 1, monotonic_ns(), Work{}, span);
        if (GpuTimer* const timer = current.now()) {
          notify_begun(*timer, recorder, *stack, number == 1, span, 1);
        }
        Record record;
        GpuTimer* const timer = current.now();
        CHECK(recorder.end(*stack, 1, monotonic_ns(), 0, record));
        if (timer != nullptr) {
          notify_ended(*timer, recorder, *stack, number == 1, span);
        }
        while (!recorder.keep(record)) std::this_thread::yield();
      }
      --running;
    });
  }
  threads.emplace_back([&] {
    for (int round = 0; running > 0; ++round) {
      current.set(round % 3 == 2 ? nullptr : &timers[round % 3]);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<Record> out;
  std::vector<Record> taken(1'000);
  const auto poll = [&](std::int64_t later_ns) {
    const std::size_t count = recorder.drain(taken.data(), taken.size());
    stage.put(taken.data(), count);
    stage.drain_ready(monotonic_ns() + later_ns, out);
    return count;
  };
  while (running > 0) poll(0);
  for (std::thread& thread : threads) thread.join();
  while (poll(kLong) > 0) {
  }
  stage.drain_all(false, out);
  std::set<std::uint64_t> spans;
  for (const Record& record : out) spans.insert(record.span);
  CHECK(out.size() == kThreads * kRuns);
  CHECK(spans.size() == kThreads * kRuns);
  CHECK(timers[0].unreported() + timers[1].unreported() == 0);
}

TEST_CASE("a run without times of the GPU keeps what it waited; one with them has these") {
  made::Timer timer;
  Line line(&timer);
  const std::int64_t now_ns = monotonic_ns();
  SUBCASE("of kernels") {
    timer.set_fast(false);
    line.put(waited(line.run(now_ns, 0), 30));
    line.put(waited(line.run(now_ns, 0, kHostOnly), 40));
    line.put();
    line.put(waited(line.run(now_ns, 0), 50));
    timer.set_fast(true);
    CHECK(line.ready() == Outcomes{{1, kTimed}, {2, kWaited}, {3, kTimed}, {4, kTimed}});
  }
  SUBCASE("keep the wait beside the time of events: the GPU had nothing to do meanwhile") {
    timer.set_by_events();
    line.put(waited(line.run(now_ns, 0), 30));
    line.put(line.run(now_ns, 0));
    std::vector<Record> records;
    line.stage->drain_all(true, records);
    REQUIRE(records.size() == 2);
    CHECK(records[0].gpu.state == GpuState::kTimedByEvents);
    CHECK(waited_ns_of(records[0].gpu) == 30);
    CHECK(waited_ns_of(records[1].gpu) == 0);
  }
  SUBCASE("that did not come in time") {
    timer.set_fast(false);
    line.put(line.run(now_ns, now_ns + 100));
    line.put(waited(line.run(now_ns, 0), 30));
    line.put(waited(line.run(now_ns, 0), 50));
    std::vector<Record> records;
    line.stage->drain_all(false, records);
    REQUIRE(records.size() == 3);
    CHECK(records[0].gpu.state == kMissing);
    CHECK(waited_ns_of(records[1].gpu) == 30);
    CHECK(waited_ns_of(records[2].gpu) == 50);
    CHECK(line.stage->missing() == 3);
  }
  SUBCASE("of which the timer saw nothing, or only a part") {
    const std::int64_t before_ns = now_ns - kSecondNs;
    line.put(waited(line.run(before_ns, 0), 30));
    line.put(waited(line.run(before_ns, monotonic_ns()), 30));
    line.put(line.run(before_ns, monotonic_ns()));
    CHECK(line.ready() == Outcomes{{1, kWaited}, {2, kWaited}, {3, kMissing}});
    CHECK(line.stage->missing() == 2);
  }
  SUBCASE("after a timer that was given up") {
    timer.set_fast(false);
    line.put(waited(line.run(now_ns, 0), 30));
    line.timers.set(nullptr);
    const std::int64_t then_ns = monotonic_ns();
    line.put(line.run(then_ns, then_ns + 100));
    line.put(waited(line.run(then_ns, 0), 50));
    CHECK(line.ready(kLong) == Outcomes{{1, kWaited}, {2, kOff}, {3, kWaited}});
  }
}

TEST_CASE("a run that DDP's events have timed keeps that time, whatever the timer does") {
  made::Timer timer;
  timer.set_fast(false);
  Line line(&timer);
  const std::int64_t now_ns = monotonic_ns();
  Record record = line.run(now_ns, now_ns + 100, kHostOnly);
  record.gpu.state = GpuState::kTimedByEvents;
  record.gpu.busy_time_ns = 100;
  line.put();
  line.put(record);
  timer.set_fast(true);
  std::vector<Record> records;
  line.stage->drain_ready(monotonic_ns(), records);
  REQUIRE(records.size() == 2);
  const Record& last = records[0].span == record.span ? records[0] : records[1];
  CHECK(last.gpu.state == GpuState::kTimedByEvents);
  CHECK(last.gpu.busy_time_ns == 100);
  CHECK(line.stage->missing() == 0);
}
