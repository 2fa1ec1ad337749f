#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "encode_made.hpp"

using namespace otel_straggler;
using namespace otel_straggler::encoding;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

const std::string kCount = "word " + std::to_string(static_cast<int>(kFoldCountWord));
const std::string kSum = "word " + std::to_string(static_cast<int>(kFoldSumWord));
const std::string kMin = "word " + std::to_string(static_cast<int>(kFoldMinWord));
const std::string kWait = "word " + std::to_string(static_cast<int>(kWaitTimeWord));
const std::string kMax = "word " + std::to_string(static_cast<int>(kFoldMaxWord));

// Runs of one section and step that all end at once.
std::vector<Record> lasting(const std::vector<std::int64_t>& lengths_ns) {
  std::vector<Record> records;
  for (std::size_t at = 0; at < lengths_ns.size(); ++at) {
    records.push_back(made::run(at + 1, kSecond - lengths_ns[at], kSecond));
  }
  return records;
}

std::vector<made::Message> encoded(SpanEncoder& encoder, const std::vector<Record>& records) {
  std::vector<made::Message> spans;
  for (const Request& request : made::encode(encoder, records)) {
    for (made::Message& span : made::spans_of(request)) spans.push_back(std::move(span));
  }
  return spans;
}

// The numbers of sections that are folded after each of so many seconds at these rates.
std::set<std::uint32_t> folded_after(FoldRule& rule, const Names& names, int seconds, int rate,
                                     std::int64_t first_second) {
  for (std::int64_t second = first_second; second < first_second + seconds; ++second) {
    for (int run = 0; run < rate; ++run) {
      rule.count(0, static_cast<std::uint64_t>(second), second * kSecond);
    }
    rule.decide(names);
  }
  return rule.folds(0) ? std::set<std::uint32_t>{0} : std::set<std::uint32_t>{};
}

}  // namespace

TEST_CASE("a bucket is narrower than 0.4 % of what is in it") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 100'000; ++round) {
    const std::uint64_t length = random() >> (random() % 64);
    const std::uint16_t bucket = sketch_bucket(length);
    const unsigned dropped = bucket < 512 ? 0 : (bucket >> kSketchBits) - 1U;
    const std::uint64_t low = (bucket - (static_cast<std::uint64_t>(dropped) << kSketchBits))
                              << dropped;
    CHECK(low <= length);
    CHECK(length - low < std::max<std::uint64_t>(1, 1ULL << dropped));
    CHECK(static_cast<double>(1ULL << dropped) <= std::max(1.0, 0.004 * static_cast<double>(low)));
  }
}

TEST_CASE("buckets ascend with length") {
  std::uint16_t before = 0;
  for (std::uint64_t length = 1; length < 1ULL << 62; length += 1 + length / 700) {
    CHECK(sketch_bucket(length) >= before);
    before = sketch_bucket(length);
  }
  CHECK(sketch_bucket(~0ULL) == 55 * 256 + 511);
}

TEST_CASE("a sketch is pairs of distance and count") {
  std::vector<std::uint16_t> buckets = {3, 3, 300, 3};
  proto::Bytes bytes;
  append_sketch(bytes, buckets);
  CHECK(bytes == proto::Bytes{0x03, 0x03, 0xA9, 0x02, 0x01});
}

TEST_CASE("count, sum, shortest and longest of a fold are exact") {
  std::mt19937_64 random(6);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> lengths(2 + random() % 300);
    for (std::int64_t& length : lengths) {
      length = 1 + static_cast<std::int64_t>(random() >> (14 + random() % 40));
    }
    SpanEncoder encoder = made::encoder(1);
    const std::vector<made::Message> spans = encoded(encoder, lasting(lengths));
    REQUIRE(spans.size() == 1);
    const auto numbers = made::numbers_of(spans[0]);
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths) sum += length;
    CHECK(numbers.at(kCount) == lengths.size());
    CHECK(numbers.at(kSum) == static_cast<std::uint64_t>(sum));
    const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
    CHECK(numbers.at(kMin) == static_cast<std::uint64_t>(*shortest));
    CHECK(numbers.at(kMax) == static_cast<std::uint64_t>(*longest));
    CHECK(encoder.counts().folded_runs == lengths.size());
  }
}

TEST_CASE("failures, steps and other sections, phases and steps are not mixed in") {
  SpanEncoder encoder = made::encoder(1);
  std::vector<Record> records = lasting(std::vector<std::int64_t>(20, 1000));
  records[1].flags = kFailed;
  records[2].flags = kStepSpan;
  records[3].section = records[4].section = 2;
  records[5].phase = records[6].phase = 1;
  records[7].step = records[8].step = 6;
  records[9].parent_section = records[10].parent_section = 2;
  records[11].tokens = records[12].tokens = 10;
  std::vector<std::uint64_t> runs;
  for (const made::Message& span : encoded(encoder, records)) {
    const auto numbers = made::numbers_of(span);
    runs.push_back(numbers.count(kCount) == 0 ? 1 : numbers.at(kCount));
  }
  // In the order of the last run of each: failed, step, then the folds.
  CHECK(runs == std::vector<std::uint64_t>{1, 1, 2, 2, 2, 2, 2, 8});
}

TEST_CASE("a run too long to be hot is sent by itself") {
  SpanEncoder encoder = made::encoder(1);
  const auto long_ns = static_cast<std::int64_t>(kLongestFolded);
  CHECK(encoded(encoder, lasting({1, long_ns, long_ns - 1})).size() == 2);
}

TEST_CASE("numbers of runs go on behind a fold") {
  SpanEncoder encoder = made::encoder(5);
  CHECK(encoded(encoder, lasting(std::vector<std::int64_t>(30, 10))).size() == 1);
  std::vector<Record> one = lasting({10});
  one[0].flags = kFailed;
  const auto numbers = made::numbers_of(encoded(encoder, one).at(0));
  CHECK(numbers.at("word " + std::to_string(static_cast<int>(kSeqWord))) == 30);
}

TEST_CASE("a rate around the budget folds once and stays") {
  Names names;
  names.add_section(0, "hot", "compute");
  FoldRule rule(100);
  CHECK(folded_after(rule, names, 1, 90, 0).empty());
  int changes = 0;
  bool before = false;
  for (int second = 1; second < 600; ++second) {
    const bool now = !folded_after(rule, names, 1, second % 2 == 0 ? 120 : 85, second).empty();
    changes += now != before ? 1 : 0;
    before = now;
  }
  CHECK(changes == 1);
  CHECK(!folded_after(rule, names, 28, 50, 600).empty());
  CHECK(folded_after(rule, names, 10, 50, 628).empty());
}

TEST_CASE("runs that waited and runs that did not are one fold, which waited for all of them") {
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
    SpanEncoder encoder = made::encoder(1);
    std::vector<Record> records = lasting(std::vector<std::int64_t>(20, 1000));
    for (std::size_t at = first; at < records.size(); at += 2) {
      records[at].gpu = waited_slot(30, records[at].start_ns, records[at].end_ns);
    }
    const std::vector<made::Message> spans = encoded(encoder, records);
    REQUIRE(spans.size() == 1);
    CHECK(made::numbers_of(spans[0]).at(kCount) == 20);
    CHECK(made::numbers_of(spans[0]).at(kWait) == 300);
  }
  SpanEncoder encoder = made::encoder(1);
  CHECK(made::numbers_of(encoded(encoder, lasting({10, 10})).at(0)).count(kWait) == 0);
}
