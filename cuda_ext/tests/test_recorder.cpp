#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "otel_straggler/recorder.hpp"

using namespace otel_straggler;

namespace {

constexpr char kSession[16] = {'0', '1', '2', '3', '4', '5', '6', '7',
                               '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};

struct Recording {
  explicit Recording(std::uint64_t capacity = 64, std::uint64_t slots = 4) : block(capacity, slots) {
    REQUIRE(block.open() == 0);
    recorder = std::make_unique<Recorder>(block);
    recorder->enable(0, kSession, 5);
    thread = recorder->enter_thread(77);
  }
  void begin(std::uint32_t section, std::int64_t now_ns) {
    recorder->begin(*thread, section, now_ns, Work{}, recorder->next_span(*thread));
  }
  Record end(std::uint32_t section, std::int64_t now_ns) {
    Record record{};
    REQUIRE(recorder->end(*thread, section, now_ns, 0, record));
    return record;
  }
  Block block;
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<ThreadStack> thread;
};

}  // namespace

TEST_CASE("a run knows the run around it, and its step") {
  Recording now;
  now.recorder->begin_step(*now.thread, 7, now.recorder->next_span(*now.thread), 0, kSession, 10);
  now.begin(1, 11);
  now.begin(2, 12);
  const Record inner = now.end(2, 13);
  const Record outer = now.end(1, 14);
  CHECK(inner.parent == outer.span);
  CHECK(inner.parent_section == 1);
  CHECK(outer.parent == outer.step_span);
  CHECK(outer.parent_section == kNoSection);
  CHECK(outer.step == 7);
  const auto step = now.recorder->end_step(*now.thread, 15, 0);
  REQUIRE(step);
  CHECK(step->span == outer.step_span);
  CHECK(step->flags == kStepSpan);
  CHECK(step->parent == kNoSpan);
  CHECK((step->start_ns == 10 && step->end_ns == 15));
  CHECK_FALSE(now.recorder->end_step(*now.thread, 16, 0));
}

TEST_CASE("a run of another step is no parent") {
  Recording now;
  now.begin(1, 10);
  now.recorder->begin_step(*now.thread, 1, now.recorder->next_span(*now.thread), 0, kSession, 11);
  now.begin(2, 12);
  CHECK(now.end(2, 13).parent_section == kNoSection);
}

TEST_CASE("runs may end in another order than they began in") {
  Recording now;
  now.begin(1, 10);
  now.begin(2, 11);
  now.begin(3, 12);
  CHECK(now.end(2, 13).parent_section == 1);
  CHECK(now.end(1, 14).parent_section == kNoSection);
  CHECK(now.end(3, 15).parent_section == kNoSection);
  Record record{};
  CHECK_FALSE(now.recorder->end(*now.thread, 3, 16, 0, record));
}

TEST_CASE("a clock that jumps back does no harm") {
  Recording now;
  now.begin(1, 100);
  const Record record = now.end(1, 50);
  CHECK((record.start_ns == 100 && record.end_ns == 50));
  CHECK(now.recorder->keep(record));
}

TEST_CASE("the open section is that of the stepping thread, else of the main one, else the oldest") {
  Recording now;
  const auto helper = now.recorder->enter_thread(78);
  now.recorder->begin(*helper, 9, 10, Work{}, 100);
  now.begin(1, 20);
  CHECK(now.recorder->open_section(77)->section == 1);
  CHECK(now.recorder->open_section(5)->section == 9);
  now.recorder->begin_step(*helper, 1, 101, 0, kSession, 30);
  CHECK(now.recorder->open_section(77)->section == 9);
}

TEST_CASE("a run that ends straight into the ring is the same record") {
  for (const std::int64_t step : {kNoStep, std::int64_t{7}}) {
    Recording now;
    if (step != kNoStep) now.recorder->begin_step(*now.thread, step, 5'000, 3, kSession, 10);
    now.recorder->set_phase(2);
    Record records[4];
    for (const bool at_once : {false, true}) {
      now.recorder->begin(*now.thread, 1, 11, Work{}, 100);
      now.recorder->begin(*now.thread, 2, 12, Work{4'096, 3}, 101);
      for (const std::uint32_t section : {2U, 1U}) {
        if (at_once) {
          REQUIRE(now.recorder->end_at_once(*now.thread, section, 20 + section));
        } else {
          REQUIRE(now.recorder->keep(now.end(section, 20 + section)));
        }
      }
    }
    REQUIRE(now.recorder->drain(records, 4) == 4);
    for (Record& record : records) record.sequence = 0;
    CHECK(std::memcmp(&records[0], &records[2], sizeof(Record)) == 0);
    CHECK(std::memcmp(&records[1], &records[3], sizeof(Record)) == 0);
    CHECK(records[0].parent_section == 1);
    CHECK(records[0].tokens == 4'096);
    CHECK(records[0].phase == 2);
    CHECK(records[0].epoch == (step == kNoStep ? 0 : 3));
  }
}

TEST_CASE("what is out of the ordinary does not end straight into the ring, and nothing happens") {
  Recording now(4);
  CHECK_FALSE(now.recorder->end_at_once(*now.thread, 1, 10));
  now.begin(1, 10);
  now.begin(2, 11);
  CHECK_FALSE(now.recorder->end_at_once(*now.thread, 1, 12));
  now.recorder->set_limit(0);
  CHECK_FALSE(now.recorder->end_at_once(*now.thread, 2, 12));
  CHECK(now.thread->depth() == 2);
  now.recorder->set_limit(4);
  for (std::uint32_t section = 3; section < 40; ++section) now.begin(section, 13);
  CHECK_FALSE(now.recorder->end_at_once(*now.thread, 39, 14));
  CHECK(now.end(39, 14).parent_section == 38);
  CHECK(now.recorder->drain(nullptr, 0) == 0);
}

TEST_CASE("a limit below the capacity is kept") {
  Recording now;
  now.recorder->set_limit(2);
  CHECK(now.recorder->keep(Record{}));
  CHECK(now.recorder->keep(Record{}));
  CHECK_FALSE(now.recorder->keep(Record{}));
  now.recorder->set_limit(1'000'000);
  CHECK(now.recorder->limit() == 64);
}

TEST_CASE("a block in a file is there for others, and a file that is there is not touched") {
  const std::string path = "/tmp/otel-straggler-test-" + std::to_string(::getpid()) + ".ring";
  {
    Block block(64, 4);
    REQUIRE(block.open(path.c_str()) == 0);
    Block second(64, 4);
    CHECK(second.open(path.c_str()) == EEXIST);
    CHECK(block.publish(NameTable::kSections, 1, "compute\0a", 9));
    CHECK(block.header().names_used.load() == 24);
    CHECK(Block(64, 4).open("/nowhere/at/all") == ENOENT);
  }
  CHECK(std::remove(path.c_str()) == 0);
}

TEST_CASE("a link where the file of a block would be is not followed") {
  const std::string path = "/tmp/otel-straggler-test-" + std::to_string(::getpid()) + ".link";
  const std::string target = path + ".target";
  REQUIRE(::symlink(target.c_str(), path.c_str()) == 0);
  CHECK(Block(64, 4).open(path.c_str()) == EEXIST);
  CHECK(::access(target.c_str(), F_OK) == -1);
  CHECK(std::remove(path.c_str()) == 0);
}

TEST_CASE("names that do not fit are counted") {
  Recording now;
  const std::vector<char> name(60'000, 'x');
  std::uint32_t published = 0;
  while (now.block.publish(NameTable::kSections, published, name.data(), name.size())) ++published;
  CHECK(published == 8);
  CHECK(now.block.header().names_left_out.load() == 1);
  CHECK_FALSE(now.block.publish(NameTable::kSections, 0, name.data(), 70'000));
}

TEST_CASE("threads that begin, end and step while others drain and look: nothing is lost") {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint64_t kEach = 5'000;
  Recording now(1'024, 2);  // fewer places than threads
  std::atomic<std::uint32_t> running{kThreads};
  std::vector<std::thread> threads;
  for (std::uint32_t at = 0; at < kThreads; ++at) {
    threads.emplace_back([&, at] {
      const auto stack = now.recorder->enter_thread(1'000 + at);
      for (std::uint64_t run = 0; run < kEach; ++run) {
        const std::uint32_t section = 1 + static_cast<std::uint32_t>(run % 3);
        now.recorder->begin(*stack, section, 1, Work{}, now.recorder->next_span(*stack));
        Record record{};
        if (run % 2 == 0 && now.recorder->end_at_once(*stack, section, 2)) continue;
        if (!now.recorder->end(*stack, section, 2, 0, record)) std::abort();
        if (!now.recorder->keep(record)) now.recorder->ring().count_dropped();
      }
      now.recorder->leave_thread(*stack);
      running.fetch_sub(1);
    });
  }
  std::vector<Record> records(256);
  std::vector<bool> seen(4 * 1'024 * 64);
  std::uint64_t taken = 0;
  std::int64_t step = 0;
  for (bool is_last = false; !is_last;) {
    is_last = running.load() == 0;
    ++step;
    now.recorder->begin_step(*now.thread, step, 1, 0, kSession, step);
    static_cast<void>(now.recorder->open_section(1'001));
    static_cast<void>(now.recorder->progress_ns());
    for (std::size_t count; (count = now.recorder->drain(records.data(), 256)) > 0;) {
      taken += count;
      for (std::size_t at = 0; at < count; ++at) {
        REQUIRE_FALSE(seen[records[at].span]);
        seen[records[at].span] = true;
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(taken + now.recorder->ring().dropped() == kThreads * kEach);
}

TEST_CASE("a run holds the waiting of its thread while it was open, and so does each around it") {
  for (const bool at_once : {false, true}) {
    Recording now;
    now.thread->add_wait(1'000);
    now.begin(1, 100);
    now.thread->add_wait(20);
    now.begin(2, 200);
    now.thread->add_wait(3);
    Record records[2];
    for (const std::uint32_t section : {2U, 1U}) {
      if (at_once) {
        REQUIRE(now.recorder->end_at_once(*now.thread, section, 300));
      } else {
        REQUIRE(now.recorder->keep(now.end(section, 300)));
      }
    }
    REQUIRE(now.recorder->drain(records, 2) == 2);
    CHECK(waited_ns_of(records[0].gpu) == 3);
    CHECK(waited_ns_of(records[1].gpu) == 23);
  }
}

TEST_CASE("a run that did not wait is as it was before there was waiting") {
  Recording now;
  now.thread->add_wait(1'000);
  now.begin(1, 100);
  CHECK(now.end(1, 200).gpu.state == GpuState::kOff);
  now.begin(1, 100);
  Record record;
  REQUIRE(now.recorder->end_at_once(*now.thread, 1, 200));
  REQUIRE(now.recorder->drain(&record, 1) == 1);
  CHECK(record.gpu.state == GpuState::kOff);
  CHECK(record.gpu.nccl_time_ns == 0);
}

TEST_CASE("a step holds the waiting of the thread that counts steps, unless another one ends it") {
  Recording now;
  now.thread->add_wait(1'000);
  now.recorder->begin_step(*now.thread, 1, 1, 0, kSession, 10);
  now.thread->add_wait(40);
  CHECK(waited_ns_of(now.recorder->end_step(*now.thread, 100, 0)->gpu) == 40);
  now.recorder->begin_step(*now.thread, 2, 2, 0, kSession, 110);
  CHECK(now.recorder->end_step(*now.thread, 200, 0)->gpu.state == GpuState::kOff);
  now.recorder->begin_step(*now.thread, 3, 3, 0, kSession, 210);
  now.thread->add_wait(40);
  const auto helper = now.recorder->enter_thread(78);
  helper->add_wait(4);
  CHECK(now.recorder->end_step(*helper, 300, 0)->gpu.state == GpuState::kOff);
}

TEST_CASE("a run that is on no stack waits for nothing: others share its thread") {
  Recording now;
  const Record begun = now.recorder->begin_detached(*now.thread, 1, 100, 7);
  now.thread->add_wait(40);
  CHECK(begun.gpu.state == GpuState::kOff);
}
