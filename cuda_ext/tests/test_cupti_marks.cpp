#include <doctest/doctest.h>

#include <random>
#include <utility>
#include <vector>

#include "otel_straggler/cupti/launches.hpp"
#include "otel_straggler/cupti/marks.hpp"

using namespace otel_straggler::cupti;

namespace {

constexpr std::int64_t kSoon = 1;
constexpr std::int64_t kMuchLater = 3'000'000'000;

}  // namespace

TEST_CASE("a kernel belongs to the mark before it") {
  Marks marks;
  CHECK(marks.find(3).knowledge == Knowledge::kUnattributed);
  const std::uint64_t first = marks.issue(11);
  CHECK(marks.find(9).knowledge == Knowledge::kNotYet);
  marks.learn(first, 10, kSoon);
  const std::uint64_t second = marks.issue(kNoRun);
  marks.learn(second, 20, kSoon);
  CHECK(marks.find(9).knowledge == Knowledge::kUnattributed);
  CHECK(marks.find(15).knowledge == Knowledge::kKnown);
  CHECK(marks.find(15).run == 11);
  CHECK(marks.find(21).knowledge == Knowledge::kUnattributed);
}

TEST_CASE("a kernel waits for marks that are on their way") {
  Marks marks;
  const std::uint64_t first = marks.issue(11);
  const std::uint64_t second = marks.issue(12);
  const std::uint64_t third = marks.issue(13);
  marks.learn(third, 30, kSoon);
  marks.learn(first, 10, kSoon);
  CHECK(marks.find(15).knowledge == Knowledge::kNotYet);
  CHECK(marks.find(35).knowledge == Knowledge::kNotYet);
  marks.learn(second, 20, kSoon);
  CHECK(marks.find(15).run == 11);
  CHECK(marks.find(25).run == 12);
  CHECK(marks.find(35).run == 13);
}

TEST_CASE("where a mark was lost no run is guessed, and what follows is known again") {
  Marks marks;
  marks.learn(marks.issue(11), 10, kSoon);
  static_cast<void>(marks.issue(12));
  marks.learn(marks.issue(13), 30, kSoon);
  marks.tend(kSoon);
  CHECK(marks.find(15).knowledge == Knowledge::kNotYet);
  marks.tend(kMuchLater);
  CHECK(marks.lost() == 1);
  CHECK(marks.find(5).knowledge == Knowledge::kUnattributed);
  CHECK(marks.find(15).knowledge == Knowledge::kLost);
  CHECK(marks.find(35).run == 13);
}

TEST_CASE("a mark that was never made, because another client pushed the id, changes nothing") {
  Marks marks;
  marks.learn(marks.issue(11), 10, kSoon);
  marks.learn(0x7F12'3456'7890U, 20, kSoon);
  marks.tend(kMuchLater);
  CHECK(marks.lost() == 0);
  CHECK(marks.find(25).run == 11);
  marks.learn(marks.issue(12), 30, kMuchLater);
  CHECK(marks.find(35).run == 12);
}

TEST_CASE("ids start again at 0, and long pauses between marks, change nothing") {
  Marks marks;
  std::uint32_t id = 0xFFFF'FFF0U;
  std::mt19937_64 random(1);
  for (std::uint32_t run = 1; run < 2'000; ++run) {
    marks.learn(marks.issue(run), id, kSoon);
    const auto launches = static_cast<std::uint32_t>(random() % 200'000'000);
    for (std::uint32_t at : {launches / 3, launches / 2, launches - 1}) {
      if (at == 0) continue;
      const Answer answer = marks.find(id + at);
      REQUIRE(answer.knowledge == Knowledge::kKnown);
      REQUIRE(answer.run == run);
    }
    id += launches + 1;
  }
}

TEST_CASE("one mark holds while ids go around, and a next one beyond half of them is understood") {
  Marks marks;
  marks.learn(marks.issue(11), 5, kSoon);
  for (std::uint64_t id = 6; id < (std::uint64_t{3} << 32); id += 1'000'000'000) {
    REQUIRE(marks.find(static_cast<std::uint32_t>(id)).run == 11);
  }
  Marks jumping;
  jumping.learn(jumping.issue(11), 5, kSoon);
  jumping.learn(jumping.issue(12), 3'000'000'005U, kSoon);
  CHECK(jumping.find(3'000'000'007U).run == 12);
  CHECK(jumping.find(2'999'999'007U).run == 11);
}

TEST_CASE("marks in any order give the answers of marks in order") {
  std::mt19937_64 random(2);
  for (int times = 0; times < 200; ++times) {
    Marks marks;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> sent;
    std::uint32_t id = static_cast<std::uint32_t>(random());
    std::vector<std::pair<std::uint32_t, Run>> kernels;
    for (std::uint32_t run = 1; run < 100; ++run) {
      sent.emplace_back(marks.issue(run), ++id);
      for (std::uint64_t at = random() % 5; at > 0; --at) kernels.emplace_back(++id, run);
    }
    std::shuffle(sent.begin(), sent.end(), random);
    std::shuffle(kernels.begin(), kernels.end(), random);
    for (std::size_t at = 0; at < sent.size(); ++at) {
      marks.learn(sent[at].first, sent[at].second, kSoon);
      for (std::size_t poll = 0; poll < kernels.size(); poll += 7) {
        const Answer answer = marks.find(kernels[poll].first);
        REQUIRE((answer.knowledge != Knowledge::kKnown || answer.run == kernels[poll].second));
      }
    }
    for (const auto& [kernel, run] : kernels) REQUIRE(marks.find(kernel).run == run);
  }
}

TEST_CASE("a hundred thousand marks cost bounded memory; what is older than they is not guessed") {
  Marks marks;
  for (std::uint32_t run = 1; run <= 100'000; ++run) {
    marks.learn(marks.issue(run), run * 10, kSoon);
    marks.tend(kSoon);
  }
  CHECK(marks.find(100'000 * 10 - 5).run == 99'999);
  CHECK(marks.find(15).knowledge == Knowledge::kLost);
}

TEST_CASE("after a restart marks of before belong to no run") {
  Marks marks;
  marks.learn(marks.issue(11), 10, kSoon);
  const std::uint64_t old = marks.issue(12);
  marks.restart();
  marks.learn(old, 20, kSoon);
  CHECK(marks.find(25).knowledge == Knowledge::kUnattributed);
  marks.learn(marks.issue(13), 30, kSoon);
  CHECK(marks.find(35).run == 13);
  CHECK(marks.find(25).knowledge == Knowledge::kUnattributed);
}

TEST_CASE("a launch is found as long as the table has not come around") {
  Launches launches;
  launches.record(0xFFFF'FFFFU, 7);
  launches.record(0, 8);
  launches.record(5, kNoRun);
  CHECK(launches.find(0xFFFF'FFFFU).run == 7);
  CHECK(launches.find(0).run == 8);
  CHECK(launches.find(5).knowledge == Knowledge::kUnattributed);
  CHECK(launches.find(6).knowledge == Knowledge::kLost);
  launches.record(5 + Launches::kPlaces, 9);
  CHECK(launches.find(5).knowledge == Knowledge::kLost);
}
