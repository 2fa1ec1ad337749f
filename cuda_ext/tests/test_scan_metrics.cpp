#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "dose.hpp"
#include "metric_requests.hpp"
#include "otel_straggler/scan_metrics.hpp"

using namespace otel_straggler;
using metric_requests::content;
using metric_requests::counter;
using metric_requests::exponential;
using metric_requests::fixed64;
using metric_requests::fixed64s;
using metric_requests::gauge;
using metric_requests::histogram;
using metric_requests::metric;
using metric_requests::number;
using metric_requests::pair;
using metric_requests::real64;
using metric_requests::request;
using metric_requests::text;

namespace {

enum Use : std::uint8_t {
  kUsed, kTimesUsed, kUnknown, kMalformed, kNoRank, kKernelsUsed, kNotDelta
};

MetricRules rules() {
  MetricRules all;
  all.keys = {{"rank", true, false, kNoText},
              {"section", false, true, kSectionText},
              {"phase", false, true, kPhaseText},
              {"reason", false, false, kReasonText},
              {"kernel", false, false, kNoText, true}};
  all.metrics = {{"sent", MetricRole::kNumber, 0, 1e9, 0}, {"step", MetricRole::kNumber, 2, 1e9, 0},
                 {"open", MetricRole::kNumber, 3, 1e9, 0}, {"dropped", MetricRole::kCounts, 0, 1e9, 3},
                 {"info", MetricRole::kInfo, 0, 0.0, 0},   {"times", MetricRole::kTimes, 0, 0.0, 0},
                 {"kernels", MetricRole::kKernels, 0, 0.0, 0}};
  all.units = {{"s", 1.0}};
  all.uses = {kUsed, kTimesUsed, kUnknown, kMalformed, kKernelsUsed, kNotDelta};
  return all;
}

std::int32_t code_of(const std::string& what) {
  return static_cast<std::int32_t>(std::hash<std::string>()(what) % 1'000);
}

bool has(const std::string& in, const std::string& what) {
  return in.find(what) != std::string::npos;
}

// What the attribute in a message Resource says, whatever its encoding.
std::string value_in(const std::string& sample) {
  Field field;
  FieldReader reader(bytes_of(sample));
  Bytes key;
  Value value;
  if (!reader.next(field)) return "none";
  REQUIRE(read_pair(field.content, key, value));
  return std::to_string(static_cast<int>(value.kind)) + std::to_string(value.bits) +
         text_of(value.text);
}

// Answers by rules that need only what a case has in common.
void answer(MetricScanner& scanner, const PointQuestion& question) {
  const std::string all = question.context + question.sample;
  const bool is_none = question.asked == AskedOfPoints::kSender && !has(all, "rank");
  const bool is_unnamed = question.asked == AskedOfPoints::kSection && question.sample.empty();
  const bool is_value =
      question.asked == AskedOfPoints::kText || question.asked == AskedOfPoints::kCounted;
  const std::int32_t code = is_none || is_unnamed ? kNoCode
                            : is_value            ? code_of(value_in(question.sample))
                                                  : code_of(all);
  scanner.learn(question.asked, question.number, code, is_none ? kNoRank : kUsed);
}

// A copy of exactly this size, so that a sanitizer sees a byte too much.
Verdict scan(MetricScanner& scanner, const std::string& body, MetricColumns& columns) {
  const std::unique_ptr<std::uint8_t[]> copy(new std::uint8_t[body.size()]);
  if (!body.empty()) std::memcpy(copy.get(), body.data(), body.size());
  for (int pass = 0; pass < 5; ++pass) {
    columns = MetricColumns();
    const Verdict verdict = scanner.scan({copy.get(), body.size()}, columns);
    if (verdict != Verdict::kColumns || columns.questions.empty()) return verdict;
    for (const PointQuestion& question : columns.questions) answer(scanner, question);
  }
  FAIL("the same question again");
  return Verdict::kUnfamiliar;
}

MetricColumns scan_one(const std::string& body) {
  MetricScanner scanner(rules());
  MetricColumns columns;
  REQUIRE(scan(scanner, body, columns) == Verdict::kColumns);
  return columns;
}

bool is_same(const NumberValue& a, const NumberValue& b) {
  return a.kind == b.kind && a.integer == b.integer && a.real == b.real;
}

bool is_same(const Beat& a, const Beat& b) {
  for (std::size_t i = 0; i < kBeatNumbers; ++i) {
    if (!is_same(a.numbers[i], b.numbers[i])) return false;
  }
  return a.source == b.source && a.texts == b.texts && a.counts == b.counts;
}

bool is_same(const PointTimes& a, const PointTimes& b) {
  const BucketCounts& one = a.buckets;
  const BucketCounts& other = b.buckets;
  return a.source == b.source && a.section == b.section && a.start_ns == b.start_ns &&
         a.end_ns == b.end_ns && a.is_cumulative == b.is_cumulative && a.unit_s == b.unit_s &&
         a.sum == b.sum && a.min_s == b.min_s && a.max_s == b.max_s &&
         one.counts == other.counts && one.bounds == other.bounds && one.scale == other.scale &&
         one.first == other.first && one.zero == other.zero && one.zero_bound == other.zero_bound;
}

template <typename Item>
bool are_same(const std::vector<Item>& a, const std::vector<Item>& b) {
  const auto same = [](const Item& x, const Item& y) { return is_same(x, y); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

bool is_same(const MetricColumns& a, const MetricColumns& b) {
  return a.points == b.points && are_same(a.beats, b.beats) && are_same(a.times, b.times) &&
         a.kernels.cell == b.kernels.cell && a.kernels.runs == b.kernels.runs &&
         a.kernels.index == b.kernels.index && a.kernels.sum_s == b.kernels.sum_s;
}

std::string times_of(std::uint32_t kind, const std::string& point) {
  return request(metric("times", kind, content(1, point), number(2, 2)));
}

}  // namespace

TEST_CASE("kernel histograms become columns of the buckets that hold something") {
  const auto kernel_point = [](const std::string& name, const std::string& counts) {
    return content(1, pair(1, "kernel", text(name)) + pair(1, "section", text("forward")) +
                          fixed64(2, 1) + fixed64(3, 1'000) + fixed64(4, 5) + real64(5, 0.5) +
                          number(6, 14) + fixed64(7, 1) +
                          content(8, number(1, 19) + content(2, counts)));
  };
  const std::string points =
      kernel_point("gemm", std::string("\1\0\3", 3)) + kernel_point("softmax", "\4");
  const MetricColumns delta = scan_one(request(metric("kernels", 10, points, number(2, 1))));
  CHECK(delta.points[kKernelsUsed] == 2);
  CHECK(delta.kernels.cell.size() == 2);
  CHECK(delta.kernels.cell[0] != delta.kernels.cell[1]);
  CHECK(delta.kernels.scale == std::vector<std::int32_t>{7, 7});
  CHECK(delta.kernels.count == std::vector<std::int64_t>{5, 5});
  CHECK(delta.kernels.index == std::vector<std::int32_t>{-10, -8, -10});
  CHECK(delta.kernels.runs == std::vector<std::int64_t>{1, 3, 4});
  CHECK(delta.kernels.ends == std::vector<std::int64_t>{2, 3});
  CHECK(std::isnan(delta.kernels.min_s[0]));
  const std::string wrong = kernel_point("gemm", "\3");
  CHECK(scan_one(request(metric("kernels", 10, wrong, number(2, 1)))).points[kMalformed] == 1);
  CHECK(scan_one(request(metric("kernels", 10, points, number(2, 2)))).points[kNotDelta] == 2);
  CHECK(scan_one(request(metric("kernels", 5, content(1, "")))).points[kUnknown] == 1);
}

TEST_CASE("points of one rank become one heartbeat") {
  const std::string open = gauge("open", 0.5, pair(7, "section", text("forward")));
  const std::string drops = counter("dropped", 3, "full") + counter("dropped", 4, "late");
  const std::string again = counter("dropped", 5, "full");
  const MetricColumns columns =
      scan_one(request(gauge("sent", 9.5) + open + drops + again + gauge("others", 1.0)));
  REQUIRE(columns.beats.size() == 1);
  const Beat& beat = columns.beats[0];
  CHECK(beat.numbers[0].real == 9.5);
  CHECK(beat.numbers[1].kind == NumberValue::Kind::kNothing);
  CHECK(beat.numbers[3].real == 0.5);
  CHECK(beat.texts[kSectionText] >= 0);
  CHECK(beat.texts[kPhaseText] == kNoCode);
  REQUIRE(beat.counts[0].size() == 2);
  CHECK(beat.counts[0][0].second == 5);
  CHECK(beat.counts[0][1].second == 4);
  CHECK(columns.points[kUsed] == 5);
  CHECK(columns.points[kUnknown] == 1);
}

TEST_CASE("a point may say who sent it, and each sender has its own heartbeat") {
  const std::string two = gauge("sent", 1.0, pair(7, "rank", text("8"))) +
                          gauge("sent", 2.0, pair(7, "rank", text("9"))) + gauge("sent", 3.0);
  const MetricColumns columns = scan_one(request(two));
  REQUIRE(columns.beats.size() == 3);
  CHECK(columns.beats[0].numbers[0].real == 1.0);
  CHECK(columns.beats[2].numbers[0].real == 3.0);
  const std::string unknown = content(1, content(2, gauge("sent", 1.0)));
  CHECK(scan_one(unknown).points[kNoRank] == 1);
}

TEST_CASE("a number that makes no sense is counted and left out") {
  for (const double value : {-1.0, 2e9, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    const MetricColumns columns = scan_one(request(gauge("sent", value)));
    CHECK(columns.beats.empty());
    CHECK(columns.points[kUnknown] == 1);
  }
}

TEST_CASE("no more counts are kept than there is room for") {
  std::string drops;
  for (std::int64_t i = 0; i < 9; ++i) drops += counter("dropped", i, std::to_string(i));
  const MetricColumns columns = scan_one(request(drops));
  CHECK(columns.beats[0].counts[0].size() == 3);
  CHECK(columns.points[kUsed] == 9);
}

TEST_CASE("a histogram is read, packed or not") {
  const std::string unpacked = pair(9, "section", text("forward")) + fixed64(3, 1'000) +
                               fixed64(4, 5) + real64(5, 0.5) + fixed64(6, 2) + real64(7, 0.25) +
                               fixed64(6, 3);
  const MetricColumns one = scan_one(request(histogram("forward", 2, 3)));
  const MetricColumns other = scan_one(times_of(9, unpacked));
  REQUIRE(one.times.size() == 1);
  CHECK(one.times[0].buckets.counts == std::vector<std::int64_t>{2, 3});
  CHECK(one.times[0].buckets.bounds == std::vector<double>{0.25});
  CHECK(is_same(one, other));
  const MetricColumns third = scan_one(request(exponential("forward", 300)));
  REQUIRE(third.times.size() == 1);
  CHECK(third.times[0].buckets.counts == std::vector<std::int64_t>{300});
  CHECK(third.times[0].buckets.scale == 3);
  CHECK(third.times[0].buckets.first == -2);
}

TEST_CASE("a histogram that makes no sense is malformed") {
  const std::string good = pair(9, "section", text("forward")) + fixed64(3, 1'000);
  const std::string counts = content(6, fixed64s({2, 3}));
  const std::string bound = real64(7, 0.25);
  const std::string cases[] = {
      good + counts + bound + fixed64(4, 6),
      good + counts + fixed64(4, 5),
      good + counts + bound + bound + fixed64(4, 5),
      good + counts + bound + fixed64(4, 5) + number(10, 1),
      good + counts + bound + fixed64(4, 5) + fixed64(2, 1'001),
      good + counts + bound + fixed64(4, 5) + fixed64(3, 1ULL << 63),
      good + content(6, fixed64s({UINT64_MAX, 1})) + bound + fixed64(4, 0),
      good + content(6, fixed64s(std::vector<std::uint64_t>(kMaxBuckets + 1, 0))),
      fixed64(3, 1'000) + counts + bound + fixed64(4, 5),
  };
  for (const std::string& point : cases) {
    CHECK(scan_one(times_of(9, point)).points[kMalformed] == 1);
  }
  CHECK(scan_one(times_of(9, good + counts + bound + fixed64(4, 5))).points[kTimesUsed] == 1);
}

TEST_CASE("what comes in two parts is left to a full parser") {
  MetricScanner scanner(rules());
  MetricColumns columns;
  const std::string twice =
      content(2, content(1, "sent") + content(5, content(1, "")) + content(7, content(1, "")));
  CHECK(scan(scanner, request(twice), columns) == Verdict::kUnfamiliar);
  const std::string resource = content(1, pair(1, "rank", text("1")));
  CHECK(scan(scanner, content(1, resource + resource), columns) == Verdict::kUnfamiliar);
}

TEST_CASE("names that never repeat fill the tables of metrics and no more") {
  MetricScanner scanner(rules());
  MetricColumns columns;
  Verdict verdict = Verdict::kColumns;
  std::size_t names = 0;
  for (; verdict == Verdict::kColumns && names < 2 * kMaxPointNames; ++names) {
    verdict = scan(scanner, request(counter("dropped", 1, std::to_string(names))), columns);
  }
  CHECK(verdict == Verdict::kFull);
  CHECK(names == kMaxPointNames + 1);
}

TEST_CASE("what is asked of points is bounded, however large the resource around them") {
  MetricScanner scanner(rules());
  MetricColumns columns;
  std::string points;
  for (int rank = 0; rank < 1'000; ++rank) {
    points += gauge("sent", 1.0, pair(7, "rank", text(std::to_string(rank))));
  }
  const std::string large(kMaxResourceBytes - 1'000, 'x');
  CHECK(scan(scanner, request(points, large), columns) == Verdict::kFull);
  CHECK(columns.questions.size() < 600);
  const std::string too_large(kMaxResourceBytes + 1, 'x');
  CHECK(scan(scanner, request(points, too_large), columns) == Verdict::kUnfamiliar);
  CHECK(scan(scanner, request(points), columns) == Verdict::kColumns);
  CHECK(columns.points[kUsed] == 1'000);
}

TEST_CASE("every truncation of metrics is read or refused") {
  std::mt19937_64 random(2);
  MetricScanner scanner(rules());
  MetricColumns columns;
  int refused = 0;
  for (int round = 0; round < 20; ++round) {
    const std::string body = metric_requests::any(random);
    for (std::size_t cut = 0; cut < body.size(); ++cut) {
      refused += scan(scanner, body.substr(0, cut), columns) == Verdict::kUnfamiliar;
    }
  }
  CHECK(refused > 1'000);
}

TEST_CASE("threads that scan metrics and answer at once get the same columns") {
  std::mt19937_64 random(3);
  std::vector<std::string> inputs;
  for (int i = 0; i < 50; ++i) inputs.push_back(metric_requests::any(random));
  MetricScanner alone(rules());
  MetricScanner shared(rules());
  std::vector<MetricColumns> expected(inputs.size());
  for (std::size_t at = 0; at < inputs.size(); ++at) {
    REQUIRE(scan(alone, inputs[at], expected[at]) == Verdict::kColumns);
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = 0; at < inputs.size(); ++at) {
        MetricColumns columns;
        scan(shared, inputs[at], columns);
        if (!is_same(columns, expected[at])) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("mangled metrics are read alike by a scanner that has learnt and by a new one") {
  const long inputs = inputs_of_one_thread(20'000);
  std::mt19937_64 random(1);
  auto learnt = std::make_unique<MetricScanner>(rules());
  MetricColumns columns;
  MetricColumns expected;
  std::string body;
  long taken = 0;
  for (long input = 0; input < inputs; ++input) {
    if (input % 16 == 0) body = metric_requests::any(random);
    std::string mangled = body;
    for (std::uint64_t i = 0; i < random() % 4; ++i) requests::mangle(mangled, random);
    Verdict verdict = scan(*learnt, mangled, columns);
    if (verdict == Verdict::kFull) {
      learnt = std::make_unique<MetricScanner>(rules());
      verdict = scan(*learnt, mangled, columns);
    }
    std::size_t kept = columns.beats.size() + columns.times.size();
    for (const PointTimes& times : columns.times) kept += times.buckets.counts.size();
    REQUIRE(kept <= mangled.size());
    if (input % 4 != 0) continue;
    MetricScanner fresh(rules());
    REQUIRE(scan(fresh, mangled, expected) == verdict);
    if (verdict != Verdict::kColumns) continue;
    ++taken;
    REQUIRE(is_same(columns, expected));
  }
  CHECK(taken > inputs / 40);
}
