#include <doctest/doctest.h>

#include <memory>
#include <thread>
#include <vector>

#include "otel_straggler/handoff.hpp"

using namespace otel_straggler;

namespace {

struct Made {
  Block block;
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<ThreadStack> thread;

  Made() {
    REQUIRE(block.open() == 0);
    recorder = std::make_unique<Recorder>(block);
    recorder->enable(0, {}, 1);
    thread = recorder->enter_thread(1);
  }

  // Ended runs with these numbers.
  void run(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t span = first; span <= last; ++span) {
      Record record{};
      record.span = span;
      REQUIRE(recorder->keep(record));
    }
  }
};

std::vector<std::uint64_t> taken(Handoff& handoff, Reader who, Recorder& recorder) {
  std::vector<Record> records;
  handoff.drain(who, recorder, kRingCapacity, records);
  std::vector<std::uint64_t> spans;
  for (const Record& record : records) spans.push_back(record.span);
  return spans;
}

using Spans = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("both readers get every record once and in order, whoever comes first") {
  Made made;
  Handoff handoff;
  handoff.set_listening(Reader::kPython, true);
  handoff.set_listening(Reader::kExporter, true);
  made.run(1, 2);
  CHECK(taken(handoff, Reader::kExporter, *made.recorder) == Spans{1, 2});
  made.run(3, 3);
  CHECK(taken(handoff, Reader::kPython, *made.recorder) == Spans{1, 2, 3});
  made.run(4, 4);
  CHECK(taken(handoff, Reader::kExporter, *made.recorder) == Spans{3, 4});
  CHECK(taken(handoff, Reader::kPython, *made.recorder) == Spans{4});
  CHECK(handoff.lost(Reader::kPython) == 0);
}

TEST_CASE("nothing waits for a reader who does not listen") {
  Made made;
  Handoff handoff;
  CHECK(handoff.is_for_python_alone());
  handoff.set_listening(Reader::kExporter, true);
  CHECK_FALSE(handoff.is_for_python_alone());
  made.run(1, 2);
  CHECK(taken(handoff, Reader::kExporter, *made.recorder) == Spans{1, 2});
  handoff.set_listening(Reader::kPython, true);
  CHECK(taken(handoff, Reader::kPython, *made.recorder).empty());
}

TEST_CASE("a reader who never comes costs bounded memory, and what it misses is counted") {
  Made made;
  Handoff handoff(10);
  handoff.set_listening(Reader::kPython, true);
  handoff.set_listening(Reader::kExporter, true);
  for (std::uint64_t first : {1U, 7U, 13U}) {
    made.run(first, first + 5);
    taken(handoff, Reader::kExporter, *made.recorder);
  }
  CHECK(handoff.lost(Reader::kPython) == 8);
  CHECK(taken(handoff, Reader::kPython, *made.recorder) ==
        Spans{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
}

TEST_CASE("a part of the ring is taken at a time") {
  Made made;
  Handoff handoff;
  made.run(1, 5);
  std::vector<Record> records;
  CHECK_FALSE(handoff.drain(Reader::kExporter, *made.recorder, 3, records));
  CHECK(records.size() == 3);
  CHECK(handoff.drain(Reader::kExporter, *made.recorder, 3, records));
  CHECK(records.size() == 5);
}

TEST_CASE("two readers at once, while others record, miss nothing") {
  constexpr std::uint64_t kRuns = 20'000;
  Made made;
  Handoff handoff;
  handoff.set_listening(Reader::kPython, true);
  handoff.set_listening(Reader::kExporter, true);
  std::atomic<bool> is_done{false};
  const auto read_all = [&](Reader who, Spans& spans) {
    bool was_done = false;
    do {
      was_done = is_done;
      const Spans now = taken(handoff, who, *made.recorder);
      spans.insert(spans.end(), now.begin(), now.end());
    } while (!was_done);
  };
  Spans of_python;
  Spans of_exporter;
  std::thread python([&] { read_all(Reader::kPython, of_python); });
  std::thread exporter([&] { read_all(Reader::kExporter, of_exporter); });
  for (std::uint64_t span = 1; span <= kRuns; ++span) {
    Record record{};
    record.span = span;
    while (!made.recorder->keep(record)) std::this_thread::yield();
  }
  is_done = true;
  python.join();
  exporter.join();
  CHECK(of_python.size() == kRuns);
  CHECK(of_exporter == of_python);
  CHECK(std::is_sorted(of_python.begin(), of_python.end()));
}
