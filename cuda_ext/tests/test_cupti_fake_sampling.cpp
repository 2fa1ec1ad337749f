// Ways that attribute or do not, and kernel records in one step of N.
#include <doctest/doctest.h>

#include <vector>

#include "faked.hpp"

using namespace faked;

namespace {

constexpr std::int64_t kEventsNs = 77;

// Times every run by events: what the collector has beneath it.
class Beneath final : public GpuTimer {
 public:
  void begun(bool, std::uint64_t, std::uint32_t) noexcept override { ++begun_; }
  void ended(bool, std::uint64_t, std::uint64_t, std::uint32_t) noexcept override { ++ended_; }
  void add(const Record* records, std::size_t count) override {
    for (std::size_t at = 0; at < count; ++at) {
      waiting_.push_back(records[at]);
      waiting_.back().gpu.state = GpuState::kTimedByEvents;
      waiting_.back().gpu.busy_time_ns = kEventsNs;
    }
  }
  void drain_ready(std::int64_t, std::vector<Record>& out) override {
    out.insert(out.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
  }
  void drain_all(bool, std::vector<Record>& out) override { drain_ready(0, out); }

  int begun_ = 0;
  int ended_ = 0;
  std::vector<Record> waiting_;
};

// A program with steps of two sections, of two and three kernels.
struct Program {
  explicit Program(SamplingRate rate, bool has_beneath = true) : process(false, settings(rate)) {
    if (has_beneath) process.gpu.set_beneath(&beneath);
  }
  ~Program() { process.gpu.set_beneath(nullptr); }

  static CollectorSettings settings(SamplingRate rate) {
    CollectorSettings given;
    given.rate = rate;
    return given;
  }

  void step(std::int64_t number) {
    const std::uint64_t span = ++spans;
    Record step{};
    step.span = span;
    step.step = number;
    step.start_ns = monotonic_ns();
    process.gpu.begun_step(span, number);
    for (const std::uint32_t section : {1U, 2U}) {
      Record run{};
      run.span = ++spans;
      run.parent = span;
      run.section = section;
      run.step = number;
      run.start_ns = monotonic_ns();
      process.gpu.begun(true, run.span, section);
      for (std::uint32_t at = 0; at <= section; ++at) fake_launch("gemm", 1'000, 0, 7);
      run.end_ns = monotonic_ns();
      process.gpu.ended(true, run.span, span, kStepSection);
      process.gpu.add(&run, 1);
    }
    step.end_ns = monotonic_ns();
    process.gpu.ended(true, span, kNoSpan, kStepSection);
    process.gpu.add(&step, 1);
  }

  // As the worker and the exporter do, half a second apart.
  void look() {
    process.gpu.flush();
    process.gpu.drain_ready(monotonic_ns(), records);
  }

  std::vector<std::int64_t> sampled_steps() const {
    std::vector<std::int64_t> steps;
    for (const Record& record : records) {
      const bool is_timed = record.gpu.state == GpuState::kTimed;
      if (is_timed && (steps.empty() || steps.back() != record.step)) steps.push_back(record.step);
    }
    return steps;
  }

  Beneath beneath;
  Process process;
  std::uint64_t spans = 0;
  std::vector<Record> records;
};

}  // namespace

TEST_CASE("a call that is enabled by itself gives no record, as measured; with its kind it does") {
  const Fresh fresh;
  const Api api = load_library(library_request()).api;
  Collector& gpu = collector(false);
  REQUIRE(gpu.start() == "");
  REQUIRE(api.disable(kDriver) == kSuccess);
  REQUIRE(api.enable_driver_api(kGetVersionCall, 1) == kSuccess);
  gpu.boundary(true, 1, 1);
  fake_launch("gemm", 1'000, 0, 7);
  gpu.flush();
  CHECK(gpu.state().counts.events == 1);
  CHECK(gpu.state().counts.attributed == 0);
  REQUIRE(api.enable(kDriver) == kSuccess);
  gpu.boundary(true, 2, 1);
  fake_launch("gemm", 1'000, 0, 7);
  gpu.flush(monotonic_ns() + kLong);
  gpu.flush(monotonic_ns() + 2 * kLong);
  CHECK(gpu.state().counts.attributed >= 1);
  gpu.stop(monotonic_ns());
}

TEST_CASE("set up by marks only the mark's call is recorded, and the kind is given back") {
  const Fresh fresh;
  Collector& gpu = collector(false);
  REQUIRE(gpu.start() == "");
  CHECK(fake_get("calls_off") == kHighestDriverCall - 1);
  CHECK(fake_get("subscribers") == 0);
  gpu.stop(monotonic_ns());
  CHECK(fake_get("kinds") == 0);
}

TEST_CASE("where calls cannot be switched off one by one, marks are heard of by a callback") {
  const Fresh fresh;
  fake_fail("cuptiActivityEnableDriverApi", 1);
  Program program({1, 1}, false);
  CHECK(program.process.gpu.way() == Way::kCallbacks);
  CHECK(fake_get("callback_calls") == 1);
  for (std::int64_t number = 0; number < 50; ++number) program.step(number);
  program.look();
  program.look();
  CHECK(program.records.size() == 150);
  CHECK(program.sampled_steps().size() == 50);
  CHECK(program.process.gpu.state().proof == ProofState::kProven);
  CHECK(program.process.gpu.state().counts.attributed == 250);
  CHECK(program.process.gpu.state().counts.lost == 0);
}

TEST_CASE("marks that are not read for long are given up, and later ones still count") {
  const Fresh fresh;
  fake_fail("cuptiActivityEnableDriverApi", 1);
  Program program({1, 1}, false);
  for (std::uint64_t span = 1; span <= 20'000; ++span) program.process.gpu.boundary(true, span, 1);
  program.process.gpu.flush();
  program.process.gpu.flush(monotonic_ns() + kLong);
  CHECK(program.process.gpu.state().marks_lost > 10'000);
  program.spans = 20'000;
  program.step(1);
  program.look();
  CHECK(program.process.gpu.state().counts.attributed == 5);
}

TEST_CASE("nothing is proven before a kernel of a section has come back") {
  const Fresh fresh;
  Process process(false);
  CHECK(process.gpu.state().proof == ProofState::kOpen);
  fake_launch("gemm", 100, 0, 7);  // outside of sections
  process.gpu.flush();
  process.gpu.flush(monotonic_ns() + kLong);
  CHECK(process.gpu.state().proof == ProofState::kOpen);
  process.begin(1, 1);
  fake_launch("gemm", 100, 0, 7);
  process.end();
  process.gpu.flush();
  CHECK(process.gpu.state().proof == ProofState::kProven);
}

TEST_CASE("kernels that come back without marks fail the way after a second; the next one works") {
  const Fresh fresh;
  const Api api = load_library(library_request()).api;
  Process process(false);
  api.disable(kDriver);  // as where a single call gives no record
  process.begin(1, 1);
  fake_launch("gemm", 100, 0, 7);
  process.end();
  process.gpu.flush();
  CHECK(process.gpu.state().proof == ProofState::kOpen);
  process.gpu.flush(monotonic_ns() + kSecondNs + 1);
  CHECK(process.gpu.state().proof == ProofState::kFailed);
  process.gpu.stop(monotonic_ns());
  REQUIRE(process.gpu.take_next_way());
  REQUIRE(process.gpu.start() == "");
  CHECK(process.gpu.state().proof == ProofState::kOpen);
  process.begin(2, 1);
  fake_launch("gemm", 100, 0, 7);
  process.end();
  process.gpu.flush();
  CHECK(process.gpu.state().proof == ProofState::kProven);
  CHECK_FALSE(process.gpu.take_next_way());  // there are two
}

TEST_CASE("a way that loses more than 1 % of the kernels has failed") {
  const Fresh fresh;
  const Api api = load_library(library_request()).api;
  Process process(false);
  std::uint64_t span = 0;
  for (int round = 0; round < 30; ++round) {
    if (round == 10) api.disable(kExternalCorrelation);
    process.begin(++span, 1);
    for (int at = 0; at < 200; ++at) fake_launch("gemm", 10, 0, 7);
    process.end();
    process.gpu.flush(monotonic_ns() + round * kSecondNs);
    if (round == 9) CHECK(process.gpu.state().proof == ProofState::kProven);
  }
  CHECK(process.gpu.state().proof == ProofState::kFailed);
}

TEST_CASE("kernel records are on in one step of N; all other runs have the time of their events") {
  const Fresh fresh;
  for (const std::uint32_t every : {1U, 10U, 50U}) {
    CAPTURE(every);
    fake_reset();
    Program program({every, every});
    for (std::int64_t number = 0; number < 4; ++number) program.step(number);  // the self-test's
    program.look();
    CHECK(program.process.gpu.state().proof == ProofState::kProven);
    program.records.clear();
    for (std::int64_t number = 1'000; number < 1'200; ++number) {
      program.step(number);
      if (number % 25 == 0) program.look();
    }
    program.look();
    program.look();
    REQUIRE(program.records.size() == 600);
    CHECK(program.sampled_steps().size() == 200 / every);
    for (const Record& record : program.records) {
      CAPTURE(record.step);
      if (record.step % every == 0) {
        REQUIRE(record.gpu.state == GpuState::kTimed);
        REQUIRE(record.gpu.kernel_count == (record.section == kStepSection ? 5 : record.section + 1));
      } else {
        REQUIRE(record.gpu.state == GpuState::kTimedByEvents);
        REQUIRE(record.gpu.busy_time_ns == kEventsNs);
      }
    }
    CHECK(program.process.gpu.state().counts.lost == 0);
    CHECK(program.process.gpu.state().counts.missing_runs == 0);
    CHECK(program.beneath.begun_ == program.beneath.ended_);
  }
}

TEST_CASE("every other step is recorded until the self-test has passed") {
  const Fresh fresh;
  Program program({50, 50});
  for (std::int64_t number = 101; number < 109; ++number) program.step(number);
  program.look();
  CHECK(program.sampled_steps() == std::vector<std::int64_t>{102, 104, 106, 108});
  for (std::int64_t number = 109; number < 151; ++number) program.step(number);
  program.look();
  CHECK(program.sampled_steps().back() == 150);
  CHECK(program.sampled_steps().size() == 5);
}

TEST_CASE("without steps one run of each section of N has kernel records") {
  const Fresh fresh;
  Program program({10, 10});
  const auto run = [&](std::uint32_t section) {
    Record record{};
    record.span = ++program.spans;
    record.section = section;
    record.start_ns = monotonic_ns();
    program.process.gpu.begun(true, record.span, section);
    fake_launch("gemm", 1'000, 0, 7);
    record.end_ns = monotonic_ns();
    program.process.gpu.ended(true, record.span, kNoSpan, kStepSection);
    program.process.gpu.add(&record, 1);
  };
  for (int time = 0; time < 4; ++time) {
    for (const std::uint32_t section : {1U, 2U}) run(section);
  }
  program.look();
  program.records.clear();
  for (int time = 0; time < 100; ++time) {
    for (const std::uint32_t section : {1U, 2U}) run(section);
  }
  program.look();
  std::uint64_t timed[3] = {};
  for (const Record& record : program.records) {
    timed[record.section] += record.gpu.state == GpuState::kTimed ? 1U : 0U;
  }
  CHECK(timed[1] == 10);
  CHECK(timed[2] == 10);
}

TEST_CASE("runs that their caller samples have kernel records each, within steps too") {
  const Fresh fresh;
  Program program({0, 1});
  for (std::int64_t number = 0; number < 20; ++number) program.step(number);
  program.look();
  for (const Record& record : program.records) {
    const bool is_section = record.section != kStepSection;
    CHECK((record.gpu.state == GpuState::kTimed) == is_section);
  }
  CHECK(fake_get("cuptiActivityEnable") >= 40);
}

TEST_CASE("the rate may change at any time, and no run is given too few kernels") {
  const Fresh fresh;
  Program program({1, 1});
  std::int64_t number = 0;
  for (const SamplingRate rate : {SamplingRate{10, 10}, {1, 1}, {3, 3}, {0, 0}, {1, 1}}) {
    for (int step = 0; step < 30; ++step) program.step(number++);
    program.look();
    program.process.gpu.set_rate(rate);
  }
  program.look();
  REQUIRE(program.records.size() == 450);
  for (const Record& record : program.records) {
    if (record.gpu.state != GpuState::kTimed) continue;
    CHECK(record.gpu.kernel_count == (record.section == kStepSection ? 5 : record.section + 1));
  }
}

TEST_CASE("what is still on the GPU when its step has ended is waited for") {
  const Fresh fresh;
  Program program({10, 10});
  fake_set("hold", 1);  // the host is ahead
  program.step(10);
  program.step(11);
  program.look();
  program.look();
  CHECK(program.records.empty());
  fake_set("hold", 0);
  program.look();
  REQUIRE(program.records.size() == 6);
  CHECK(program.records[2].gpu.kernel_count == 5);
  CHECK(program.records[5].gpu.state == GpuState::kTimedByEvents);
}

TEST_CASE("a graph that was captured without records is timed as a whole; or its run by events") {
  const Fresh fresh;
  const char* const nodes[] = {"gemm", "softmax"};
  for (const bool has_graphs : {true, false}) {
    CAPTURE(has_graphs);
    fake_reset();
    fake_set("captured_untraced", 1);
    if (!has_graphs) fake_fail("cuptiActivityEnable(GRAPH_TRACE)", 27);
    CollectorSettings settings;
    settings.times_whole_graphs = true;
    Process process(false, settings);
    Beneath beneath;
    process.gpu.set_beneath(&beneath);
    Record run{};
    for (run.span = 1; run.span <= 2; ++run.span) {
      run.start_ns = monotonic_ns();
      process.gpu.begun(true, run.span, 1);
      if (run.span == 1) fake_launch("gemm", 1'000, 0, 7);
      if (run.span == 2) fake_launch_graph(nodes, 2, 1'000, 0, 7);
      run.end_ns = monotonic_ns();
      process.gpu.ended(true, run.span, kNoSpan, 0);
      process.gpu.add(&run, 1);
    }
    process.gpu.flush();
    const std::vector<Record> records = process.ready();
    REQUIRE(records.size() == 2);
    CHECK(records[0].gpu.state == GpuState::kTimed);
    CHECK(records[1].gpu.state == (has_graphs ? GpuState::kTimed : GpuState::kTimedByEvents));
    CHECK(records[1].gpu.busy_time_ns == (has_graphs ? 2'000 : kEventsNs));
    process.gpu.set_beneath(nullptr);
  }
}
