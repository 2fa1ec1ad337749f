// Results of a scan, and its configuration.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "otel_straggler/protobuf.hpp"

namespace otel_straggler {

inline constexpr std::int32_t kNoCode = -1;
inline constexpr std::int64_t kRowWithoutStep = -1;
inline constexpr std::size_t kOutcomes = 16;

// What the own time of a span rests on, as in model/observation.py.
enum class Basis : std::uint8_t { kHost = 0, kEvents = 1, kCupti = 2, kCollective = 3 };

// Where a time is found; of a span that has none, or something that is no number, these.
inline constexpr std::int32_t kNotReportedSlot = -1;
inline constexpr std::int32_t kNoNumberSlot = -2;

// What spans of one shape are.
struct Judgement {
  enum class Sequence : std::uint8_t { kIds = 0, kFixed = 1, kNumber = 2 };

  std::int32_t section = kNoCode;  // kNoCode: not scored; `outcome` says why
  std::uint8_t outcome = 0;
  std::int32_t step_slot = kNoCode;  // number that holds the step; kNoCode: it is `step`
  std::int64_t step = kRowWithoutStep;
  Sequence sequence = Sequence::kIds;
  std::int32_t sequence_slot = 0;
  std::int64_t fixed_sequence = 0;
  std::int32_t tokens_slot = kNoCode;  // number that holds the work size; kNoCode: it is `tokens`
  double tokens = std::numeric_limits<double>::quiet_NaN();
  Basis basis = Basis::kHost;
  std::array<std::int32_t, 3> gpu_slots{kNotReportedSlot, kNotReportedSlot,
                                        kNotReportedSlot};  // GpuColumns
};

// The sender of a span: a source, or kNoCode and why there is none.
struct Sender {
  std::int32_t source = kNoCode;
  std::uint8_t outcome = 0;
};

// Outcomes that a scan finds by itself; the others are numbered by the scorer.
struct OwnOutcomes {
  std::uint8_t row;
  std::uint8_t bad_id;
  std::uint8_t bad_time;
  std::uint8_t duration_not_positive;
};

enum class Asked : std::uint8_t { kScope = 0, kSender = 1, kShape = 2 };

struct Question {
  Asked asked;
  std::uint32_t number;  // of what is asked about
  std::string context;   // of a sender: its resource; of a shape: its scope
  std::string sample;    // a scope, or a span (of a resource alone: nothing)
};

// How far a source has come.
struct Progress {
  std::int32_t source;
  std::int64_t step;
  std::int64_t end_ns;
};

// GPU times of rows, or their waiting in collectives; see otlp/span_rules.py. Empty as long as none has any, and behind the last
// that does the rows are left out: complete() adds them.
struct GpuColumns {
  std::vector<std::uint8_t> basis;
  std::array<std::vector<double>, 3> times_s;  // busy, nccl, kernel
  std::uint64_t refused = 0;

  void reserve(std::size_t rows) {
    basis.reserve(rows);
    for (std::vector<double>& column : times_s) column.reserve(rows);
  }

  // Adds the values of row number `row`.
  void put(std::size_t row, Basis its, const std::array<double, 3>& seconds) {
    complete(row);
    basis.push_back(static_cast<std::uint8_t>(its));
    for (std::size_t i = 0; i < times_s.size(); ++i) times_s[i].push_back(seconds[i]);
  }

  void complete(std::size_t rows) {
    basis.resize(rows, static_cast<std::uint8_t>(Basis::kHost));
    for (std::vector<double>& column : times_s) {
      column.resize(rows, std::numeric_limits<double>::quiet_NaN());
    }
  }
};

// One request. The codes in `source` and `section` index `sources` and `sections`, which stand in
// the order of first appearance.
struct Columns {
  std::vector<std::int32_t> source, section;
  std::vector<std::int64_t> step, start_ns, sequence;
  std::vector<double> duration_s, tokens;
  std::vector<std::int32_t> sources, sections;
  std::vector<Progress> progress;
  std::array<std::uint64_t, kOutcomes> outcomes{};
  std::vector<Question> questions;
  bool has_tokens = false;
  GpuColumns gpu;

  std::size_t size() const { return source.size(); }

  void make_room(std::size_t more) {
    if (size() + more <= source.capacity()) return;
    const std::size_t rows = std::max(size() + more, 2 * source.capacity());
    source.reserve(rows), section.reserve(rows);
    step.reserve(rows), start_ns.reserve(rows), sequence.reserve(rows);
    duration_s.reserve(rows), tokens.reserve(rows);
    if (!gpu.basis.empty()) gpu.reserve(rows);
  }
};

// Codes of one request for numbers that outlive it, by first appearance.
class Renumbered {
 public:
  // The code of `number` in request `pass`; `append` is called when it appears for the first time.
  template <typename Append>
  std::int32_t of(std::int32_t number, std::uint64_t pass, std::int32_t next, Append append) {
    const auto at = static_cast<std::size_t>(number);
    if (at >= codes_.size()) codes_.resize(2 * at + 1);
    Code& code = codes_[at];
    if (code.pass != pass) {
      code = {pass, next};
      append();
    }
    return code.code;
  }

 private:
  struct Code {
    std::uint64_t pass = 0;
    std::int32_t code = 0;
  };

  std::vector<Code> codes_;
};

// 64 bits of trace id and span id.
inline std::int64_t mix_ids(const std::uint8_t* trace_id, const std::uint8_t* span_id) {
  std::uint64_t mixed = load<std::uint64_t>(trace_id) * 0x9E37'79B9'7F4A'7C15U ^
                        load<std::uint64_t>(trace_id + 8) * 0xC2B2'AE3D'27D4'EB4FU ^
                        load<std::uint64_t>(span_id) * 0xD6E8'FEB8'6659'FD93U;
  mixed ^= mixed >> 32;
  const auto sequence = static_cast<std::int64_t>(mixed);
  return sequence == std::numeric_limits<std::int64_t>::min() ? 0 : sequence;
}

}  // namespace otel_straggler
