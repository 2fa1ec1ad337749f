#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "dose.hpp"
#include "otel_straggler/scan.hpp"
#include "requests.hpp"

using namespace otel_straggler;
using requests::attribute;
using requests::bytes_of;
using requests::integer;
using requests::real;
using requests::text;

namespace {

enum Outcome : std::uint8_t { kRow, kBadId, kBadTime, kNotPositive, kNoRank, kExcluded };

std::vector<Key> keys() {
  return {{"section", KeyRole::kSection, 0}, {"kind", KeyRole::kShape, 0},
          {"step", KeyRole::kNumber, 0},     {"seq", KeyRole::kNumber, 1},
          {"tokens", KeyRole::kNumber, 2},   {"rank", KeyRole::kWho, 0},
          {"basis", KeyRole::kShape, 0},     {"busy", KeyRole::kNumber, 3},
          {"nccl", KeyRole::kNumber, 4},     {"kernel", KeyRole::kNumber, 5},
          {"waited", KeyRole::kNumber, 6}};
}

constexpr OwnOutcomes kOutcomesOfScan{kRow, kBadId, kBadTime, kNotPositive};

bool has(const std::string& in, const std::string& what) {
  return in.find(what) != std::string::npos;
}

std::string request_of(const requests::Span& span) {
  return requests::resource(requests::scope(requests::content(2, span.encoded())));
}

std::int32_t code_of(const std::string& what, std::size_t codes) {
  return static_cast<std::int32_t>(std::hash<std::string>()(what) % codes);
}

// Answers by rules that need only what a case has in common.
void answer(Scanner& scanner, const Question& question) {
  static const KeyTable table(keys());
  SpanFacts facts;
  if (question.asked == Asked::kScope) {
    scanner.learn_scope(question.number, has(question.sample, "otel_straggler"));
    return;
  }
  REQUIRE(SpanReader(table).read(bytes_of(question.sample), facts));
  if (question.asked == Asked::kSender) {
    scanner.learn_sender(question.number, {code_of(question.context + facts.who, 1'000), kRow});
    return;
  }
  Judgement judgement;
  judgement.section = code_of(facts.shape, 1'000);
  // Numbers of keys, and kinds of values: integer and double.
  if (has(facts.shape, {'\2', '\0', '\3'})) judgement.step_slot = 0;
  if (has(facts.shape, {'\4', '\0', '\4'})) judgement.tokens_slot = 2;
  if (has(facts.shape, "cupti")) judgement.basis = Basis::kCupti;
  if (has(facts.shape, "events")) judgement.basis = Basis::kEvents;
  if (has(facts.shape, "collective")) judgement.basis = Basis::kCollective;
  if (has(facts.shape, {'\7', '\0', '\3'})) judgement.gpu_slots = {3, 4, 5};
  if (has(facts.shape, {'\12', '\0', '\3'})) judgement.gpu_slots = {kNotReportedSlot, 6, kNotReportedSlot};
  scanner.learn_shape(question.number, judgement);
}

// A copy of exactly this size, so that a sanitizer sees a byte too much.
Verdict scan(Scanner& scanner, const std::string& request, Columns& columns) {
  const std::unique_ptr<std::uint8_t[]> copy(new std::uint8_t[request.size()]);
  if (!request.empty()) std::memcpy(copy.get(), request.data(), request.size());
  for (int pass = 0; pass < 4; ++pass) {
    columns = Columns();
    const Verdict verdict = scanner.scan({copy.get(), request.size()}, columns);
    if (verdict != Verdict::kColumns || columns.questions.empty()) return verdict;
    for (const Question& question : columns.questions) answer(scanner, question);
  }
  FAIL("the same question again");
  return Verdict::kUnfamiliar;
}

Columns scan_one(Scanner& scanner, const requests::Span& span) {
  Columns columns;
  REQUIRE(scan(scanner, request_of(span), columns) == Verdict::kColumns);
  return columns;
}

bool is_same(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

}  // namespace

TEST_CASE("a span becomes a row with its numbers") {
  Scanner scanner(keys(), kOutcomesOfScan);
  requests::Span span;
  for (std::int64_t step : {0, 127, 128, 1 << 20}) {
    span.rest = attribute("section", text("forward")) + attribute("step", integer(step)) +
                attribute("tokens", real(512.0));
    const Columns columns = scan_one(scanner, span);
    REQUIRE(columns.size() == 1);
    CHECK(columns.step[0] == step);
    CHECK(columns.tokens[0] == 512.0);
    CHECK(columns.start_ns[0] == 1'000);
    CHECK(columns.duration_s[0] == 2'000 * 1e-9);
    CHECK(columns.progress[0].step == step);
    CHECK(columns.outcomes[kRow] == 1);
  }
}

TEST_CASE("GPU times are columns from the first span that has them") {
  Scanner scanner(keys(), kOutcomesOfScan);
  const auto spans = [](const std::string& last) {
    requests::Span plain;
    requests::Span timed;
    const auto times = [&](std::int64_t busy) {
      return attribute("basis", text("cupti")) + attribute("busy", integer(busy)) +
             attribute("nccl", integer(100)) + attribute("kernel", integer(busy + 50));
    };
    timed.rest = times(900);
    std::string all = requests::content(2, plain.encoded()) + requests::content(2, timed.encoded());
    timed.rest = times(-1);
    all += requests::content(2, timed.encoded()) + requests::content(2, plain.encoded());
    return requests::resource(requests::scope(all + last));
  };
  Columns columns;
  REQUIRE(scan(scanner, spans(""), columns) == Verdict::kColumns);
  CHECK(columns.gpu.basis == std::vector<std::uint8_t>{0, 2, 0, 0});
  for (const auto& column : columns.gpu.times_s) CHECK(column.size() == 4);
  CHECK(columns.gpu.times_s[0][1] == 900 * 1e-9);
  CHECK(columns.gpu.times_s[1][1] == 100 * 1e-9);
  CHECK(columns.gpu.times_s[2][1] == 950 * 1e-9);
  CHECK(std::isnan(columns.gpu.times_s[0][2]));
  CHECK(columns.gpu.refused == 1);
  REQUIRE(scan(scanner, request_of({}), columns) == Verdict::kColumns);
  CHECK(columns.gpu.basis.empty());
}

TEST_CASE("a GPU time is believed up to ten times the run and a minute") {
  Scanner scanner(keys(), kOutcomesOfScan);
  requests::Span span;
  span.end_ns = INT64_MAX;  // no limit overflows
  for (const std::int64_t start : {std::int64_t{1}, INT64_MAX - 2'000}) {
    span.start_ns = static_cast<std::uint64_t>(start);
    const std::int64_t limit = start == 1 ? INT64_MAX - 7 : 60'000'020'000;
    for (const std::int64_t more : {0, 1}) {
      span.rest = attribute("basis", text("cupti")) + attribute("busy", integer(limit + more)) +
                  attribute("nccl", integer(0)) + attribute("kernel", integer(0));
      const Columns columns = scan_one(scanner, span);
      CHECK(columns.gpu.refused == static_cast<std::uint64_t>(more));
      CHECK(columns.gpu.basis.size() == static_cast<std::size_t>(1 - more));
    }
  }
}

TEST_CASE("waiting in collectives is believed up to the whole run") {
  Scanner scanner(keys(), kOutcomesOfScan);
  requests::Span span;
  span.start_ns = 1;
  for (const std::uint64_t length : {std::uint64_t{2'000}, std::uint64_t{INT64_MAX - 1}}) {
    span.end_ns = 1 + length;
    const auto whole = static_cast<std::int64_t>(length);
    for (const std::int64_t waited : {std::int64_t{-1}, std::int64_t{0}, whole, whole + 1}) {
      span.rest = attribute("basis", text("collective")) + attribute("waited", integer(waited));
      const Columns columns = scan_one(scanner, span);
      const bool is_believed = waited >= 0 && waited <= whole;
      CHECK(columns.gpu.refused == (is_believed ? 0 : 1));
      REQUIRE(columns.gpu.basis.size() == (is_believed ? 1 : 0));
      if (!is_believed) continue;
      CHECK(columns.gpu.basis[0] == 3);
      CHECK(columns.gpu.times_s[0][0] == static_cast<double>(whole) * 1e-9);
      CHECK(columns.gpu.times_s[1][0] == static_cast<double>(waited) * 1e-9);
      CHECK(std::isnan(columns.gpu.times_s[2][0]));
    }
  }
  span.rest = attribute("basis", text("collective"));
  CHECK(scan_one(scanner, span).gpu.refused == 0);
}

TEST_CASE("a span that cannot be a row is counted by its reason") {
  Scanner scanner(keys(), kOutcomesOfScan);
  requests::Span span;
  span.trace_id = std::string(16, '\0');
  CHECK(scan_one(scanner, span).outcomes[kBadId] == 1);
  span = {};
  span.span_id = "short";
  CHECK(scan_one(scanner, span).outcomes[kBadId] == 1);
  span = {};
  span.start_ns = 1ULL << 63;
  CHECK(scan_one(scanner, span).outcomes[kBadTime] == 1);
  span = {};
  span.end_ns = span.start_ns;
  CHECK(scan_one(scanner, span).outcomes[kNotPositive] == 1);
}

TEST_CASE("names that never repeat fill the tables and no more") {
  Scanner scanner(keys(), kOutcomesOfScan);
  Verdict verdict = Verdict::kColumns;
  std::size_t names = 0;
  for (; verdict == Verdict::kColumns && names < 2 * kMaxShapes; ++names) {
    requests::Span span;
    span.name = "name " + std::to_string(names);
    Columns columns;
    verdict = scan(scanner, request_of(span), columns);
  }
  CHECK(verdict == Verdict::kFull);
  CHECK(names == kMaxShapes + 1);
}

TEST_CASE("a span that is like one before is read as if it were parsed, or not at all") {
  std::mt19937_64 random(7);
  const KeyTable table(keys());
  const SpanReader reader(table);
  SpanFacts first;
  SpanFacts parsed;
  SpanFacts alike;
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    requests::Span span;
    span.rest = attribute("section", text("forward")) + attribute("step", integer(5)) +
                attribute("loss", real(0.5)) + attribute("seq", integer(300)) +
                attribute("rank", integer(7));
    std::string bytes = span.encoded();
    REQUIRE(reader.read(bytes_of(bytes), first));
    const SpanTemplate one(bytes_of(bytes), table, first.who, 3);
    REQUIRE(one.numbers() == 2);
    for (std::uint64_t i = 0; i < 1 + random() % 3; ++i) {
      const std::size_t at = random() % bytes.size();
      bytes[at] = static_cast<char>(random());
    }
    if (!one.read(bytes_of(bytes), alike)) continue;
    ++accepted;
    REQUIRE(reader.read(bytes_of(bytes), parsed));
    REQUIRE(parsed.shape == first.shape);
    REQUIRE(parsed.who == alike.who);
    REQUIRE(parsed.trace_id == alike.trace_id);
    REQUIRE(parsed.span_id == alike.span_id);
    REQUIRE(parsed.start_ns == alike.start_ns);
    REQUIRE(parsed.end_ns == alike.end_ns);
    REQUIRE(parsed.numbers[0].integer == alike.numbers[0].integer);
    REQUIRE(parsed.numbers[1].integer == alike.numbers[1].integer);
  }
  CHECK(accepted > 1'000);
}

TEST_CASE("a question that came with a refused request comes again") {
  Scanner scanner(keys(), kOutcomesOfScan);
  scan_one(scanner, {});
  requests::Span unknown;
  unknown.name = "unknown";
  Columns columns;
  CHECK(scanner.scan(bytes_of(request_of(unknown) + "!"), columns) == Verdict::kUnfamiliar);
  CHECK(scan_one(scanner, unknown).size() == 1);
}

TEST_CASE("what is asked is bounded, however large the resource around it") {
  Scanner scanner(keys(), kOutcomesOfScan);
  std::string spans;
  for (std::int64_t rank = 0; rank < 1'000; ++rank) {
    requests::Span span;
    span.rest = attribute("rank", integer(rank));
    spans += requests::content(2, span.encoded());
  }
  const std::string scopes = requests::scope(spans);
  Columns columns;
  const std::string large(kMaxResourceBytes - 1'000, 'x');
  CHECK(scan(scanner, requests::resource(scopes, large), columns) == Verdict::kFull);
  CHECK(columns.questions.size() < 600);
  const std::string too_large(kMaxResourceBytes + 1, 'x');
  CHECK(scan(scanner, requests::resource(scopes, too_large), columns) == Verdict::kUnfamiliar);
  CHECK(scan(scanner, requests::resource(scopes), columns) == Verdict::kColumns);
  CHECK(columns.size() == 1'000);
}

TEST_CASE("threads that scan and answer at once get the same columns") {
  std::mt19937_64 random(3);
  std::vector<std::string> inputs;
  for (int i = 0; i < 50; ++i) inputs.push_back(requests::any(random));
  Scanner alone(keys(), kOutcomesOfScan);
  Scanner shared(keys(), kOutcomesOfScan);
  std::vector<std::vector<std::int64_t>> expected;
  for (const std::string& request : inputs) {
    Columns columns;
    REQUIRE(scan(alone, request, columns) == Verdict::kColumns);
    expected.push_back(columns.step);
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = 0; at < inputs.size(); ++at) {
        Columns columns;
        scan(shared, inputs[at], columns);
        if (columns.step != expected[at]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("mangled requests are read alike by a scanner that has learnt and by a new one") {
  const long inputs = inputs_of_one_thread(20'000);
  std::mt19937_64 random(1);
  auto learnt = std::make_unique<Scanner>(keys(), kOutcomesOfScan);
  Columns columns;
  Columns expected;
  std::string request;
  long taken = 0;
  for (long input = 0; input < inputs; ++input) {
    if (input % 16 == 0) request = requests::any(random);
    std::string mangled = request;
    for (std::uint64_t i = 0; i < random() % 4; ++i) requests::mangle(mangled, random);
    Verdict verdict = scan(*learnt, mangled, columns);
    if (verdict == Verdict::kFull) {
      learnt = std::make_unique<Scanner>(keys(), kOutcomesOfScan);
      verdict = scan(*learnt, mangled, columns);
    }
    REQUIRE(columns.source.capacity() <= 16 + 2 * mangled.size() / 48);
    if (input % 4 != 0) continue;
    Scanner fresh(keys(), kOutcomesOfScan);
    REQUIRE(scan(fresh, mangled, expected) == verdict);
    if (verdict != Verdict::kColumns) continue;
    ++taken;
    REQUIRE(columns.outcomes == expected.outcomes);
    REQUIRE(columns.step == expected.step);
    REQUIRE(columns.start_ns == expected.start_ns);
    REQUIRE(columns.sequence == expected.sequence);
    REQUIRE(columns.source == expected.source);
    REQUIRE(columns.section == expected.section);
    REQUIRE(is_same(columns.duration_s, expected.duration_s));
    REQUIRE(is_same(columns.tokens, expected.tokens));
  }
  CHECK(taken > inputs / 40);
}
