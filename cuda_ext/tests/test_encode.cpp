#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>

#include "dose.hpp"
#include "encode_made.hpp"

using namespace otel_straggler;
using namespace otel_straggler::encoding;

namespace {

std::string hex(const std::uint8_t* bytes, std::size_t size) {
  std::string text;
  for (std::size_t at = 0; at < size; ++at) {
    text += "0123456789abcdef"[bytes[at] >> 4];
    text += "0123456789abcdef"[bytes[at] & 15];
  }
  return text;
}

}  // namespace

TEST_CASE("BLAKE2b gives the digest of RFC 7693, appendix A") {
  std::array<std::uint8_t, 64> digest{};
  Blake2b::hash("abc", "", digest.data(), digest.size());
  CHECK(hex(digest.data(), 16) == "ba80a53f981c4d0d6a2797b69f12f6e9");
}

TEST_CASE("the trace of a step is the one that every release computes") {
  const TraceId id = step_trace_id(Identity{"run", 0, "", 0}, 7);
  CHECK(hex(id.data(), id.size()) == "36831d6b1fd441ed7d6953fd987d0307");
}

TEST_CASE("windows of time begin at multiples of 30 s, before 1970 too") {
  CHECK(window_of(kWindowNs) == 1);
  CHECK(window_of(kWindowNs - 1) == 0);
  CHECK(window_of(-1) == -1);
  CHECK(window_of(-kWindowNs) == -1);
}

TEST_CASE("a remembered trace is the trace") {
  const Identity who{"run", 0, "", 3};
  Traces traces(who);
  std::mt19937_64 random(1);
  for (int round = 0; round < 1'000; ++round) {
    const std::int64_t step = static_cast<std::int64_t>(random() % 600) - 300;
    CHECK(traces.of(step, 0) == step_trace_id(who, step));
    CHECK(traces.of(kNoStep, step * kWindowNs) == window_trace_id(who, step));
  }
}

TEST_CASE("a padded varint is as long as asked and as large as given") {
  std::array<std::uint8_t, 10> bytes{};
  proto::put_varint(bytes.data(), 4, 300);
  CHECK(hex(bytes.data(), 4) == "ac828000");
  proto::put_varint(bytes.data(), 10, ~0ULL);
  CHECK(hex(bytes.data(), 10) == "ffffffffffffffffff01");
}

TEST_CASE("runs of a section are numbered in the order of their ends") {
  SpanEncoder encoder = made::encoder();
  const std::vector<Request> requests =
      made::encode(encoder, {made::run(1, 10, 20), made::run(2, 20, 20), made::run(3, 30, 90)});
  REQUIRE(requests.size() == 1);
  const std::vector<made::Message> spans = made::spans_of(requests[0]);
  REQUIRE(spans.size() == 3);
  for (std::size_t at = 0; at < spans.size(); ++at) {
    CHECK(made::numbers_of(spans[at]).at("word 1") == at);
    CHECK(made::numbers_of(spans[at]).at("word 0") == 5);
  }
  CHECK(spans[1].numbers.find(8)->second == spans[1].numbers.find(7)->second + 1);
}

TEST_CASE("a number longer than all before widens the layout, and no other number") {
  SpanEncoder encoder = made::encoder();
  std::vector<Record> records;
  for (const std::int64_t step : {1LL, 1LL << 40, 2LL, -1LL}) {
    records.push_back(made::run(1, 1, 2));
    records.back().step = step;
  }
  std::vector<std::uint64_t> steps;
  for (const made::Message& span : made::spans_of(made::encode(encoder, records)[0])) {
    steps.push_back(made::numbers_of(span).at("word 0"));
  }
  CHECK(steps == std::vector<std::uint64_t>{1, 1ULL << 40, 2, ~0ULL});
}

TEST_CASE("a record without a name is counted and not read") {
  SpanEncoder encoder = made::encoder();
  std::vector<Record> records(4, made::run(1, 1, 2));
  records[0].section = 3;
  records[1].phase = 0xFFFF'FFFF;
  records[2].parent_section = 0xFFFF'FFFE;
  records[3].epoch = 9;
  CHECK(made::encode(encoder, records).empty());
  CHECK(encoder.counts().bad_records == 3);
  CHECK(encoder.counts().other_epochs == 1);
}

TEST_CASE("a name far beyond all others is refused") {
  SpanEncoder encoder = made::encoder();
  CHECK(!encoder.add_section(0xFFFF'FFFF, "far", "compute"));
  CHECK(!encoder.add_phase(kMaxNames, "far"));
}

TEST_CASE("of many epochs the newest are kept") {
  SpanEncoder encoder = made::encoder();
  for (std::uint32_t id = 1; id <= 2 * SpanEncoder::kMaxEpochs; ++id) encoder.add_epoch(id, {});
  Record old = made::run(1, 1, 2);
  Record young = old;
  young.epoch = 2 * SpanEncoder::kMaxEpochs;
  CHECK(made::encode(encoder, {old, young}).size() == 1);
  CHECK(encoder.counts().other_epochs == 1);
}

TEST_CASE("any bytes are a block of records") {
  const long rounds = inputs_of_one_thread(2'000);
  std::mt19937_64 random(3);
  for (long round = 0; round < rounds; ++round) {
    SpanEncoder encoder = made::encoder(round % 3 == 0 ? 0 : 20);
    for (int block = 0; block < 3; ++block) {
      std::vector<Record> records(random() % 50);
      auto* const bytes = reinterpret_cast<std::uint8_t*>(records.data());
      static_assert(sizeof(Record) % sizeof(std::uint64_t) == 0);
      for (std::size_t at = 0; at < records.size() * sizeof(Record); at += sizeof(std::uint64_t)) {
        const std::uint64_t eight = random();
        std::memcpy(bytes + at, &eight, sizeof eight);
      }
      for (Record& record : records) {  // most of them close to sense, so that they get far
        if (random() % 8 != 0) record.section %= 4;
        if (random() % 8 != 0) record.phase %= 3;
        if (random() % 8 != 0) record.epoch = 0;
        if (random() % 2 != 0) record.parent_section = kNoSection;
        if (random() % 2 != 0) record.step_span %= 3;
        if (random() % 2 != 0) record.step = 4;
        if (random() % 2 != 0) record.flags = 0;
        if (random() % 2 != 0) record.end_ns = record.start_ns;
        record.gpu.state = static_cast<GpuState>(random() % 7);
      }
      std::size_t spans = 0;
      const std::uint64_t before = encoder.counts().spans;
      std::vector<Request> requests = made::encode(encoder, records, random() % 3);
      for (const Request& request : requests) {
        const std::vector<made::Message> found = made::spans_of(request);
        CHECK(found.size() == request.spans());
        spans += found.size();
      }
      CHECK(spans == encoder.counts().spans - before);
      encoder.recycle(requests);
    }
  }
}

TEST_CASE("what a run waited is a number of its span, and its basis") {
  SpanEncoder encoder = made::encoder();
  std::vector<Record> records = {made::run(1, 10, 20), made::run(2, 20, 30), made::run(3, 30, 40)};
  records[0].gpu = waited_slot(4, 10, 20);
  records[1].gpu = GpuSlot{1, 2, 3, 4, GpuState::kTimed};
  const std::vector<made::Message> spans = made::spans_of(made::encode(encoder, records).at(0));
  REQUIRE(spans.size() == 3);
  const std::string wait = "word " + std::to_string(static_cast<int>(kWaitTimeWord));
  const std::string nccl = "word " + std::to_string(static_cast<int>(kNcclTimeWord));
  CHECK(made::numbers_of(spans[0]).at(wait) == 4);
  CHECK(made::numbers_of(spans[0]).count(nccl) == 0);
  CHECK(made::numbers_of(spans[1]).count(wait) == 0);
  CHECK(made::numbers_of(spans[1]).at(nccl) == 3);
  CHECK(made::numbers_of(spans[2]).count(wait) == 0);
  const std::string basis = "word " + std::to_string(static_cast<int>(kTimeBasisWord));
  const Word bases[] = {kCollectiveBasisWord, kCuptiBasisWord, kHostBasisWord};
  for (std::size_t at = 0; at < spans.size(); ++at) {
    CHECK(made::texts_of(spans[at]).at(basis) ==
          "word " + std::to_string(static_cast<int>(bases[at])));
  }
}
