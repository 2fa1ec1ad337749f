#include <doctest/doctest.h>

#include <vector>

#include "otel_straggler/cupti/pipeline.hpp"

using namespace otel_straggler;
using namespace otel_straggler::cupti;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kStart = 100 * kSecond;

// A pipeline with everything that it refers to; launches are noted as CUPTI's callback does.
struct Made {
  explicit Made(Way way = Way::kLaunches) : pipeline(way, current.directory(), marks, launches) {
    pipeline.begin(kStart, 1);
    pipeline.learn({kNoSpan, kStart, true});
  }

  void enter(std::uint64_t span, std::uint32_t section, std::int64_t now_ns) {
    current.set(true, span, section);
    if (pipeline_way == Way::kLaunches) return;
    mark_events.push_back({marks.issue(run_of(span)), ++id});
    pipeline.tend(now_ns);
  }

  GpuEvent launch(std::uint64_t start_ns, std::uint64_t end_ns, std::uint32_t stream = 7) {
    ++id;
    launches.record(id, current.here());
    current.directory().count_launch(current.here(), false);
    return {kConcurrentKernel, id, start_ns, end_ns, 0, stream, "gemm"};
  }

  void deliver(const GpuEvent& event, std::int64_t now_ns) {
    pipeline.process(nullptr, 0, &event, 1, now_ns);
  }

  Record record(std::uint64_t span, std::uint64_t parent, std::int64_t start_ns,
                std::int64_t end_ns) {
    Record run{};
    run.span = span;
    run.parent = parent;
    run.start_ns = start_ns;
    run.end_ns = end_ns;
    return run;
  }

  // A kernel of a run, which shows that kernels are attributed.
  void prove() {
    enter(9, 1, kStart);
    deliver(launch(10, 20), kStart);
  }

  std::vector<Record> ready(std::int64_t now_ns) {
    std::vector<Record> out;
    pipeline.drain_ready(now_ns, out);
    return out;
  }

  Way pipeline_way = Way::kLaunches;
  CurrentRun current;
  Marks marks;
  Launches launches;
  Pipeline pipeline;
  std::uint32_t id = 0;
  std::vector<MarkEvent> mark_events;
};

}  // namespace

TEST_CASE("a run is ready as soon as every kernel that it launched has come back") {
  Made made;
  made.enter(1, 1, kStart);
  const GpuEvent first = made.launch(10, 20);
  const GpuEvent second = made.launch(30, 45);
  made.enter(kNoSpan, 0, kStart + 50);
  const Record run = made.record(1, kNoSpan, kStart, kStart + 50);
  made.pipeline.add(&run, 1);
  made.deliver(second, kStart + 60);
  CHECK(made.ready(kStart + 70).empty());
  made.deliver(first, kStart + 80);
  const std::vector<Record> out = made.ready(kStart + 90);
  REQUIRE(out.size() == 1);
  CHECK(out[0].gpu.state == GpuState::kTimed);
  CHECK(out[0].gpu.kernel_time_ns == 25);
}

TEST_CASE("of runs that share a place the newer is known, and not what the older launched") {
  RunDirectory directory;
  constexpr Run kOld = 7;
  constexpr Run kNew = kOld + RunDirectory::kPlaces;
  directory.put(kOld, 1);
  directory.count_launch(kOld, false);
  CHECK(directory.launched(kOld) == 1);
  directory.put(kNew, 2);
  CHECK(directory.launched(kNew) == 0);
  CHECK(directory.section_of(kNew) == 2);
  CHECK(directory.section_of(kOld) == kNoSection);
  CHECK(directory.launched(kOld) == RunDirectory::kHasGraphs);
  directory.put(kOld, 1);  // it is current again
  CHECK(directory.section_of(kOld) == 1);
  CHECK(directory.launched(kOld) == RunDirectory::kHasGraphs);
  std::uint32_t newest = 0;
  directory.record_end(kNew, 9);  // whose place is the older one's again
  CHECK_FALSE(directory.newest_at_end(kOld, newest));
  directory.record_end(kOld, 9);
  REQUIRE(directory.newest_at_end(kOld, newest));
  CHECK(newest == 9);
  CHECK_FALSE(directory.newest_at_end(kNew, newest));
  directory.put(0xFFFF'FFFFU, 3);
  directory.put(RunDirectory::kPlaces - 1, 4);  // numbers start again
  CHECK(directory.launched(RunDirectory::kPlaces - 1) == 0);
}

TEST_CASE("a run whose number ends in 32 zeros is missing: its kernels look like those of no run") {
  constexpr std::uint64_t kSpan = std::uint64_t{7} << 32;
  Made made;
  made.enter(kSpan, 1, kStart);
  made.deliver(made.launch(10, 20), kStart + 30);
  const Record run = made.record(kSpan, kNoSpan, kStart, kStart + 50);
  made.pipeline.add(&run, 1);
  const std::vector<Record> out = made.ready(kStart + 60);
  REQUIRE(out.size() == 1);
  CHECK(out[0].gpu.state == GpuState::kMissing);
  CHECK(made.pipeline.counts().outside == 1);
}

TEST_CASE("a run without kernels is timed: there were none; once any run has had one") {
  Made made;
  made.enter(8, 1, kStart);
  const Record early = made.record(8, kNoSpan, kStart, kStart + 1);
  made.pipeline.add(&early, 1);
  CHECK(made.ready(kStart + 1).at(0).gpu.state == GpuState::kMissing);
  made.prove();
  made.enter(1, 1, kStart);
  made.enter(kNoSpan, 0, kStart + 50);
  const Record run = made.record(1, kNoSpan, kStart, kStart + 50);
  made.pipeline.add(&run, 1);
  const std::vector<Record> out = made.ready(kStart + 60);
  REQUIRE(out.size() == 1);
  CHECK(out[0].gpu.state == GpuState::kTimed);
  CHECK(out[0].gpu.kernel_count == 0);
}

TEST_CASE("where launches are counted, one that is out holds the run, whatever came later") {
  Made made;
  made.enter(1, 1, kStart);
  const GpuEvent slow = made.launch(10, 20, 20);
  made.enter(2, 1, kStart + 50);
  made.pipeline.tend(kStart + 60);
  const GpuEvent later = made.launch(30, 40);
  const Record run = made.record(1, kNoSpan, kStart, kStart + 50);
  made.pipeline.add(&run, 1);
  made.deliver(later, kStart + 70);
  for (int flushes = 0; flushes < 3; ++flushes) made.pipeline.flushed();
  CHECK(made.ready(kStart + kSecond).empty());
  made.deliver(slow, kStart + kSecond);
  CHECK(made.ready(kStart + kSecond).at(0).gpu.kernel_time_ns == 10);
}

TEST_CASE("numbers that do not come in two seconds are missing, and counted when they come late") {
  Made made;
  made.enter(1, 1, kStart);
  const GpuEvent slow = made.launch(10, 20);
  made.enter(kNoSpan, 0, kStart + 50);
  const Record run = made.record(1, kNoSpan, kStart, kStart + 50);
  made.pipeline.add(&run, 1);
  CHECK(made.ready(kStart + 50 + 2 * kSecond - 1).empty());
  const std::vector<Record> out = made.ready(kStart + 50 + 2 * kSecond);
  REQUIRE(out.size() == 1);
  CHECK(out[0].gpu.state == GpuState::kMissing);
  CHECK(out[0].gpu.kernel_time_ns == 0);
  CHECK(made.pipeline.counts().missing_runs == 1);
  made.deliver(slow, kStart + 3 * kSecond);
  CHECK(made.pipeline.counts().late == 1);
  CHECK(made.pipeline.stats().drain().size() == 1);  // the kernel itself is counted all the same
}

TEST_CASE("a run has the kernels of the runs inside it, late ones too, once each") {
  Made made;
  made.enter(1, 1, kStart);
  const GpuEvent outer = made.launch(0 + 10, 20);
  made.enter(2, 2, kStart + 10);
  const GpuEvent inner = made.launch(15, 40);
  const GpuEvent slow = made.launch(50, 60);
  made.enter(1, 1, kStart + 20);
  made.enter(kNoSpan, 0, kStart + kSecond);
  const Record runs[] = {made.record(2, 1, kStart + 10, kStart + 20),
                         made.record(1, kNoSpan, kStart, kStart + kSecond)};
  made.pipeline.add(runs, 2);
  made.deliver(outer, kStart + kSecond);
  made.deliver(inner, kStart + kSecond);
  made.pipeline.tend(kStart + kSecond);
  std::vector<Record> out = made.ready(kStart + 20 + 2 * kSecond);
  REQUIRE(out.size() == 1);
  CHECK(out[0].gpu.state == GpuState::kMissing);
  made.deliver(slow, kStart + 2 * kSecond + 30);
  const GpuEvent later = made.launch(70, 80);
  made.deliver(later, kStart + 2 * kSecond + 40);  // so the GPU is beyond the outer run
  made.pipeline.flushed();
  out = made.ready(kStart + 3 * kSecond);
  REQUIRE(out.size() == 1);
  CHECK(out[0].span == 1);
  CHECK(out[0].gpu.state == GpuState::kTimed);
  CHECK(out[0].gpu.kernel_count == 3);
  CHECK(out[0].gpu.kernel_time_ns == 45);
  CHECK(out[0].gpu.busy_time_ns == 40);
}

TEST_CASE("with marks a run is ready when the main stream is beyond it, and a flush has followed") {
  Made made(Way::kMarks);
  made.pipeline_way = Way::kMarks;
  made.enter(1, 1, kStart);
  const GpuEvent own = made.launch(10, 20);
  const GpuEvent side = made.launch(12, 30, 20);
  made.enter(2, 1, kStart + 50);
  made.pipeline.tend(kStart + 60);
  const GpuEvent next = made.launch(40, 50);
  const Record run = made.record(1, kNoSpan, kStart, kStart + 50);
  made.pipeline.add(&run, 1);
  made.pipeline.process(made.mark_events.data(), made.mark_events.size(), &own, 1, kStart + 70);
  made.pipeline.flushed();
  CHECK(made.ready(kStart + 100).empty());
  made.deliver(next, kStart + 110);
  made.pipeline.flushed();
  CHECK(made.ready(kStart + 120).empty());  // seen to be beyond: now a flush for the side stream
  made.deliver(side, kStart + 130);
  made.pipeline.flushed();
  const std::vector<Record> out = made.ready(kStart + 140);
  REQUIRE(out.size() == 1);
  CHECK(out[0].gpu.state == GpuState::kTimed);
  CHECK(out[0].gpu.kernel_count == 2);
  CHECK(out[0].gpu.busy_time_ns == 20);
}

TEST_CASE("where records were dropped, the runs that were open lately are missing") {
  Made made;
  made.prove();
  made.enter(1, 1, kStart);
  made.enter(kNoSpan, 0, kStart + 50);
  made.pipeline.count_dropped(3, kStart + 60);
  const Record runs[] = {made.record(1, kNoSpan, kStart, kStart + 50),
                         made.record(2, kNoSpan, kStart + 70, kStart + 80)};
  made.enter(2, 1, kStart + 70);
  made.pipeline.add(runs, 2);
  const std::vector<Record> out = made.ready(kStart + 100);
  REQUIRE(out.size() == 2);
  CHECK(out[0].gpu.state == GpuState::kMissing);
  CHECK(out[1].gpu.state == GpuState::kTimed);
  CHECK(made.pipeline.counts().dropped == 3);
}

TEST_CASE("where a mark was lost, kernels are of no run and runs are missing until that is over") {
  Made made(Way::kMarks);
  made.pipeline_way = Way::kMarks;
  std::vector<GpuEvent> kernels;
  for (const std::uint64_t span : {1U, 2U, 3U}) {
    made.enter(span, 1, kStart);
    kernels.push_back(made.launch(10 * span, 10 * span + 5));
  }
  made.mark_events.erase(made.mark_events.begin() + 1);
  made.pipeline.process(made.mark_events.data(), 2, kernels.data(), 3, kStart + 10);
  CHECK(made.pipeline.counts().lost == 0);
  CHECK(made.pipeline.parked().size() == 3);
  made.pipeline.tend(kStart + 3 * kSecond);
  CHECK(made.pipeline.counts().lost == 2);  // each may be of the first run or of the second
  CHECK(made.pipeline.parked().size() == 0);
  const Record run = made.record(1, kNoSpan, kStart, kStart + 5);
  made.pipeline.add(&run, 1);
  CHECK(made.ready(kStart + 3 * kSecond).at(0).gpu.state == GpuState::kMissing);
}

TEST_CASE("a run that begins once the kernels around a lost mark are back is timed") {
  Made made(Way::kMarks);
  made.pipeline_way = Way::kMarks;
  std::vector<GpuEvent> kernels;
  for (const std::uint64_t span : {1U, 2U, 3U}) {
    made.enter(span, 1, kStart);
    kernels.push_back(made.launch(10 * span, 10 * span + 5));
  }
  made.mark_events.erase(made.mark_events.begin() + 1);
  made.pipeline.process(made.mark_events.data(), 2, kernels.data(), 3, kStart + 100);
  made.mark_events.clear();
  made.enter(4, 1, kStart + 110);
  kernels = {made.launch(140, 145), made.launch(150, 157)};
  made.enter(5, 1, kStart + 120);
  kernels.push_back(made.launch(160, 165));
  made.pipeline.process(made.mark_events.data(), 2, kernels.data(), 3, kStart + 200);
  const Record runs[] = {made.record(3, kNoSpan, kStart + 90, kStart + 105),
                         made.record(4, kNoSpan, kStart + 110, kStart + 120)};
  made.pipeline.add(runs, 2);
  made.pipeline.tend(kStart + 3 * kSecond);
  CHECK(made.pipeline.counts().lost == 2);
  const std::vector<Record> out = made.ready(kStart + 3 * kSecond);
  REQUIRE(out.size() == 2);
  CHECK(out[0].gpu.state == GpuState::kMissing);  // what is lost might have been launched by it
  CHECK(out[1].gpu.state == GpuState::kTimed);
  CHECK(out[1].gpu.kernel_count == 2);
  CHECK(out[1].gpu.kernel_time_ns == 12);
}

TEST_CASE("a run whose kernels are parked still is not done, however far the GPU is seen to be") {
  Made made(Way::kMarks);
  made.pipeline_way = Way::kMarks;
  made.enter(1, 1, kStart);
  const GpuEvent own = made.launch(10, 20);
  made.enter(2, 1, kStart + 50);
  const GpuEvent next = made.launch(40, 50);
  made.enter(3, 1, kStart + 60);
  made.pipeline.process(made.mark_events.data(), 1, &own, 1, kStart + 70);
  CHECK(made.pipeline.parked().size() == 1);
  made.pipeline.process(made.mark_events.data() + 1, 2, &next, 1, kStart + 2 * kSecond);
  const Record run = made.record(1, kNoSpan, kStart, kStart + 50);
  made.current.directory().record_end(1, 2);
  made.pipeline.add(&run, 1);
  const std::vector<Record> out = made.ready(kStart + 50 + 2 * kSecond);  // before the next tend()
  REQUIRE(out.size() == 1);
  CHECK(out[0].gpu.state == GpuState::kMissing);
}

TEST_CASE("a worker that was held up for long finds the section of every kernel") {
  Made made(Way::kMarks);
  made.pipeline_way = Way::kMarks;
  const auto mark = [&](std::uint64_t span) {
    made.current.set(true, span, 1);
    return MarkEvent{made.marks.issue(run_of(span)), ++made.id};
  };
  std::vector<MarkEvent> marks;
  std::vector<GpuEvent> kernels;
  for (std::uint64_t span = 1; span <= 300; ++span) {
    marks.push_back(mark(span));
    for (int n = 0; n < 1'000; ++n) kernels.push_back(made.launch(10, 15));
  }
  marks.push_back(mark(kNoSpan));
  for (std::size_t run = 0; run < 300; ++run) {  // all in one go, without a moment between
    made.pipeline.process(&marks[run], 1, &kernels[run * 1'000], 1'000, kStart + 10);
  }
  CHECK(made.pipeline.parked().size() > 0);
  made.pipeline.process(&marks[300], 1, nullptr, 0, kStart + 10);
  made.pipeline.tend(kStart + 20);
  CHECK(made.pipeline.parked().size() == 0);
  CHECK(made.pipeline.counts().lost == 0);
  CHECK(made.pipeline.counts().events == 300'000);
}

TEST_CASE("a queue that is full forever is not scanned with every mark") {
  constexpr std::uint64_t kSeconds = 6;
  constexpr std::uint64_t kMarks = 400;  // a second, of which every fiftieth is lost
  Made made(Way::kMarks);
  made.pipeline_way = Way::kMarks;
  std::uint64_t events = 0;
  std::size_t max_parked = 0;
  for (std::uint64_t span = 1; span <= kSeconds * kMarks; ++span) {
    const std::int64_t now_ns = kStart + static_cast<std::int64_t>(span) * kSecond / kMarks;
    made.current.set(true, span, 1);
    const MarkEvent mark{made.marks.issue(run_of(span)), ++made.id};
    std::vector<GpuEvent> kernels;
    for (int at = 0; at < 125; ++at) kernels.push_back(made.launch(10, 15));
    made.pipeline.process(&mark, span % 50 == 0 ? 0 : 1, kernels.data(), kernels.size(), now_ns);
    if (span % 40 == 0) made.pipeline.tend(now_ns);
    events += kernels.size();
    max_parked = std::max(max_parked, made.pipeline.parked().size());
  }
  CHECK(max_parked == Pipeline::kMaxParked);
  CHECK(made.pipeline.counts().events == events);
  CHECK(made.pipeline.parked().examined() < 4 * events);
  made.pipeline.tend(kStart + static_cast<std::int64_t>(kSeconds + 9) * kSecond);
  CHECK(made.pipeline.parked().size() == 0);
}

TEST_CASE("a run that began before tracing, or ended after it, is never half timed") {
  Made made;
  made.pipeline.end(kStart + 100);
  const Record runs[] = {made.record(1, kNoSpan, kStart - 90, kStart - 50),
                         made.record(2, kNoSpan, kStart - 10, kStart + 50),
                         made.record(3, kNoSpan, kStart + 90, kStart + 110),
                         made.record(4, kNoSpan, kStart + 100, kStart + 120)};
  made.pipeline.add(runs, 4);
  const std::vector<Record> out = made.ready(kStart + 200);
  REQUIRE(out.size() == 4);
  CHECK(out[0].gpu.state == GpuState::kOff);
  CHECK(out[1].gpu.state == GpuState::kMissing);
  CHECK(out[2].gpu.state == GpuState::kMissing);
  CHECK(out[3].gpu.state == GpuState::kOff);
}

TEST_CASE("kernels from before the clock was set are left out, those outside of runs counted") {
  Made made;
  made.pipeline.begin(kStart, 1'000);
  made.deliver(made.launch(900, 1'100), kStart);
  made.deliver(made.launch(1'100, 1'200), kStart);
  CHECK(made.pipeline.counts().early == 1);
  CHECK(made.pipeline.counts().outside == 1);
  const auto cells = made.pipeline.stats().drain();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].section == kNoSection);
}

TEST_CASE("at the end everything comes out, timed only if all was there") {
  for (const bool is_complete : {false, true}) {
    Made made(Way::kMarks);
    made.pipeline_way = Way::kMarks;
    made.enter(1, 1, kStart);
    const GpuEvent own = made.launch(10, 20);
    made.enter(kNoSpan, 0, kStart + 50);
    made.pipeline.process(made.mark_events.data(), made.mark_events.size(), &own, 1, kStart + 70);
    const Record run = made.record(1, kNoSpan, kStart, kStart + 50);
    made.pipeline.add(&run, 1);
    CHECK(made.ready(kStart + 80).empty());
    std::vector<Record> out;
    made.pipeline.drain_all(is_complete, kStart + 90, out);
    REQUIRE(out.size() == 1);
    CHECK(out[0].gpu.state == (is_complete ? GpuState::kTimed : GpuState::kMissing));
    CHECK(out[0].gpu.kernel_count == (is_complete ? 1U : 0U));
  }
}

TEST_CASE("a hundred thousand runs that are never requested cost bounded memory") {
  Made made;
  for (std::uint64_t span = 1; span <= 100'000; ++span) {
    made.enter(span, 1, kStart);
    made.deliver(made.launch(10, 20), kStart);
    const Record run = made.record(span, kNoSpan, kStart, kStart + 1);
    made.pipeline.add(&run, 1);
  }
  CHECK(made.ready(kStart + 2).size() == 100'000 - Pipeline::kMaxWaiting);  // but none is lost
  CHECK(made.pipeline.runs().size() <= RunTable::kMaxRuns);
  CHECK(made.pipeline.waiting() <= Pipeline::kMaxWaiting);
}

TEST_CASE("runs whose numbers share an entry of the table are kept apart, and the oldest evicted") {
  constexpr Run kApart = RunTable::kMaxRuns;
  RunTable runs;
  runs.set_now(kStart);
  for (const Run run : {5U, 5U + kApart, 5U + 2 * kApart}) runs.at(run).kernels = run;
  for (Run run = 3; run < kApart; ++run) runs.at(10 * kApart + run);  // now it is full
  for (const Run run : {5U, 5U + kApart, 5U + 2 * kApart}) CHECK(runs.at(run).kernels == run);
  CHECK(runs.evicted() == 0);
  runs.at(7);
  CHECK(runs.find(5) == nullptr);
  runs.at(8);
  CHECK(runs.find(5 + kApart) == nullptr);
  CHECK(runs.find(5 + 2 * kApart)->kernels == 5 + 2 * kApart);
  CHECK(runs.at(5).kernels == 0);  // in the place of the third
  CHECK(runs.find(5 + 2 * kApart) == nullptr);
  CHECK(runs.find(5) != nullptr);
  CHECK(runs.find(7) != nullptr);
  CHECK(runs.size() == RunTable::kMaxRuns);
  CHECK(runs.evicted() == 3);
}
