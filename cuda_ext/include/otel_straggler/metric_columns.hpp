// Results of a scan of metrics, and its configuration.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace otel_straggler {

inline constexpr std::size_t kUses = 9;  // what became of a point
inline constexpr std::size_t kBeatNumbers = 5;
inline constexpr std::size_t kBeatTexts = 3;
inline constexpr std::size_t kBeatCounts = 2;

// Texts from attributes of a point. The first kBeatTexts belong to a heartbeat.
enum TextSlot : std::uint8_t { kSectionText, kPhaseText, kOutcomeText, kReasonText, kNoText };

// Of which attribute a count is the count, by its slot.
inline constexpr std::array<TextSlot, kBeatCounts> kCountsBy{kReasonText, kSectionText};

// What an attribute of a point means.
struct PointKey {
  std::string text;
  bool identifies_sender;
  bool identifies_section;
  TextSlot slot;
  bool identifies_kernel = false;
};

enum class MetricRole : std::uint8_t {
  kNumber = 0,  // of a heartbeat; `slot` says which
  kCounts = 1,  // by the value of an attribute
  kInfo = 2,    // its attributes describe the sender
  kTimes = 3,   // a histogram of section times
  kKernels = 4,  // a histogram of kernel times
};

struct MetricRule {
  std::string name;
  MetricRole role;
  std::uint8_t slot;
  double largest;  // number that makes sense
  std::uint32_t max_count;  // of counts: how many are kept
};

struct Unit {
  std::string name;
  double seconds;
};

// Uses that a scan finds by itself; others are numbered by the rules for senders.
struct OwnUses {
  std::uint8_t used;
  std::uint8_t times;
  std::uint8_t unknown;
  std::uint8_t malformed;
  std::uint8_t kernels;
  std::uint8_t not_delta;
};

enum class AskedOfPoints : std::uint8_t {
  kSender = 0,       // who sent a point: attributes on top of a resource
  kDescription = 1,  // the sender, with its full description
  kText = 2,         // an attribute as text of a heartbeat
  kCounted = 3,      // an attribute as the name of a count
  kSection = 4,      // attributes of a histogram point
  kCell = 5,         // those that name a kernel and its section
};

struct PointQuestion {
  AskedOfPoints asked;
  std::uint32_t number;  // of what is asked about
  std::string context;   // a resource, or nothing
  std::string sample;    // attributes, as a message Resource
};

// A number of 64 bits as it was received.
struct NumberValue {
  enum class Kind : std::uint8_t { kNothing, kInt, kDouble };

  Kind kind = Kind::kNothing;
  std::int64_t integer = 0;
  double real = 0.0;
};

using Counts = std::vector<std::pair<std::int32_t, std::int64_t>>;  // code of the name, count

// One heartbeat. Codes are those of the answers; kNoCode: not reported.
struct Beat {
  std::int32_t source = -1;
  std::array<NumberValue, kBeatNumbers> numbers{};
  std::array<std::int32_t, kBeatTexts> texts{-1, -1, -1};
  std::array<Counts, kBeatCounts> counts{};
};

// The buckets of a histogram point; `scale` is that of exponential ones.
struct BucketCounts {
  std::vector<std::int64_t> counts;
  std::vector<double> bounds;
  std::optional<std::int32_t> scale;
  std::int32_t first = 0;
  std::int64_t zero = 0;
  double zero_bound = 0.0;
};

struct PointTimes {
  std::int32_t source = -1;
  std::int32_t section = -1;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  bool is_cumulative = false;
  double unit_s = 1.0;
  std::optional<double> sum, min_s, max_s;
  BucketCounts buckets;
};

// Points of kernel histograms; see otel_straggler/model/kernels.py.
struct KernelColumns {
  std::vector<std::int32_t> source, cell, scale;
  std::vector<std::int64_t> start_ns, end_ns, count;
  std::vector<std::int64_t> ends;  // of each point in `index` and `runs`
  std::vector<double> sum_s, min_s, max_s;
  std::vector<std::int32_t> index;
  std::vector<std::int64_t> runs;
};

// One request, or questions.
struct MetricColumns {
  std::vector<Beat> beats;
  std::vector<PointTimes> times;
  KernelColumns kernels;
  std::array<std::uint64_t, kUses> points{};
  std::vector<PointQuestion> questions;
};

}  // namespace otel_straggler
