// Heartbeats as OTLP metrics: the message ExportMetricsServiceRequest, as
// otel_straggler/otlp/encode_metrics.py makes it. Words of the wire come from there, encoded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "otel_straggler/proto_write.hpp"

namespace otel_straggler {

// Metrics of a heartbeat, in the order in which client/heartbeats.py gives their heads (name,
// description and unit of the message Metric), then texts.
enum HeartbeatWord : std::size_t {
  kHeartbeatMetric,
  kProgressMetric,
  kProgressStepMetric,
  kSectionOpenMetric,
  kRankFinishedMetric,
  kRecordsDroppedMetric,
  kRecordsFoldedMetric,
  kRankInfoMetric,
  kScopeMessage,
  kMetricsSchemaUrl,
  kSectionKey,
  kPhaseKey,
  kOutcomeKey,
  kReasonKey,
  kRingFullReason,
  kInboxFullReason,
  kQueueFullReason,
  kRejectedReason,
  kProcessEndedReason,
  kEncodeErrorReason,
  kGpuMissingReason,
  kGpuDroppedReason,
  kGpuInvalidReason,
  kGpuLostReason,
  kGpuLateReason,
  kHeartbeatWords,
};
using HeartbeatVocabulary = std::array<std::string, kHeartbeatWords>;
using CountsByName = std::map<std::string, std::uint64_t>;

// What a rank reports about itself. Times are Unix nanoseconds.
struct Heartbeat {
  std::int64_t now_ns = 0;
  std::int64_t started_ns = 0;  // since when losses and folded runs are counted
  std::int64_t progress_ns = 0;
  std::optional<std::int64_t> step;
  std::optional<std::pair<std::string, std::int64_t>> open_section;  // name, how long in ns
  std::string phase;
  std::string outcome;  // empty: the rank has not ended
  CountsByName dropped;
  CountsByName folded;
};

namespace heartbeats {

inline proto::Bytes text_attribute(std::string_view key, std::string_view text) {
  proto::Bytes value;
  proto::append_text(value, 1, text);
  proto::Bytes pair;
  proto::append_text(pair, 1, key);
  proto::append_message(pair, 2, value);
  proto::Bytes attribute;
  proto::append_message(attribute, 7, pair);
  return attribute;
}

inline proto::Bytes int_attribute(std::string_view key, std::uint64_t number) {
  proto::Bytes value;
  proto::append_tag(value, 3, proto::kVarint);
  proto::append_varint(value, number);
  proto::Bytes pair;
  proto::append_text(pair, 1, key);
  proto::append_message(pair, 2, value);
  proto::Bytes attribute;
  proto::append_message(attribute, 7, pair);
  return attribute;
}

inline void append_fixed64(proto::Bytes& out, std::uint32_t field, std::uint64_t value) {
  proto::append_tag(out, field, proto::kFixed64);
  out.resize(out.size() + 8);
  proto::put_fixed64(out.data() + out.size() - 8, value);
}

inline void append_double(proto::Bytes& point, double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  append_fixed64(point, 4, bits);
}

inline void append_int(proto::Bytes& point, std::int64_t value) {
  append_fixed64(point, 6, static_cast<std::uint64_t>(value));
}

inline double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace heartbeats

class HeartbeatWriter {
 public:
  explicit HeartbeatWriter(HeartbeatVocabulary words) : words_(std::move(words)) {}

  const std::string& word(HeartbeatWord word) const { return words_[word]; }

  // Args: resource: the message Resource. info: the attributes of the rank's description, as
  // fields of a data point.
  proto::Bytes request(const Heartbeat& beat, std::string_view resource, std::string_view info) {
    using namespace heartbeats;
    metrics_.clear();
    const proto::Bytes phase =
        beat.phase.empty() ? proto::Bytes() : text_attribute(words_[kPhaseKey], beat.phase);
    put_seconds(kHeartbeatMetric, beat, beat.now_ns, {});
    put_seconds(kProgressMetric, beat, beat.progress_ns, phase);
    if (beat.step) put_int(kProgressStepMetric, beat, *beat.step, {});
    if (beat.open_section) {
      proto::Bytes around = text_attribute(words_[kSectionKey], beat.open_section->first);
      around.insert(around.end(), phase.begin(), phase.end());
      put_seconds(kSectionOpenMetric, beat, beat.open_section->second, around);
    }
    if (!beat.outcome.empty()) {
      put_seconds(kRankFinishedMetric, beat, beat.now_ns,
                  text_attribute(words_[kOutcomeKey], beat.outcome));
    }
    put_counts(kRecordsDroppedMetric, kReasonKey, beat, beat.dropped);
    put_counts(kRecordsFoldedMetric, kSectionKey, beat, beat.folded);
    put_int(kRankInfoMetric, beat, 1, proto::Bytes(info.begin(), info.end()));
    return around_metrics(resource);
  }

 private:
  void put_seconds(HeartbeatWord metric, const Heartbeat& beat, std::int64_t value_ns,
                   proto::Bytes point) {
    heartbeats::append_fixed64(point, 3, static_cast<std::uint64_t>(beat.now_ns));
    heartbeats::append_double(point, heartbeats::seconds(value_ns));
    put_gauge(metric, point);
  }

  void put_int(HeartbeatWord metric, const Heartbeat& beat, std::int64_t value,
               proto::Bytes point) {
    heartbeats::append_fixed64(point, 3, static_cast<std::uint64_t>(beat.now_ns));
    heartbeats::append_int(point, value);
    put_gauge(metric, point);
  }

  void put_gauge(HeartbeatWord metric, const proto::Bytes& point) {
    proto::Bytes gauge;
    proto::append_message(gauge, 1, point);
    put_metric(metric, 5, gauge);
  }

  // A running total by one attribute.
  void put_counts(HeartbeatWord metric, HeartbeatWord key, const Heartbeat& beat,
                  const CountsByName& counts) {
    if (counts.empty()) return;
    proto::Bytes sum;
    for (const auto& [name, count] : counts) {
      proto::Bytes point = heartbeats::text_attribute(words_[key], name);
      heartbeats::append_fixed64(point, 2, static_cast<std::uint64_t>(beat.started_ns));
      heartbeats::append_fixed64(point, 3, static_cast<std::uint64_t>(beat.now_ns));
      heartbeats::append_int(point, static_cast<std::int64_t>(count));
      proto::append_message(sum, 1, point);
    }
    proto::append_tag(sum, 2, proto::kVarint);
    proto::append_varint(sum, 2);  // cumulative
    proto::append_tag(sum, 3, proto::kVarint);
    proto::append_varint(sum, 1);  // monotonic
    put_metric(metric, 7, sum);
  }

  void put_metric(HeartbeatWord metric, std::uint32_t field, const proto::Bytes& data) {
    proto::Bytes whole;
    proto::append_bytes(whole, words_[metric]);
    proto::append_message(whole, field, data);
    proto::append_message(metrics_, 2, whole);
  }

  proto::Bytes around_metrics(std::string_view resource) const {
    proto::Bytes scope;
    proto::append_text(scope, 1, words_[kScopeMessage]);
    proto::append_bytes(scope, proto::view_of(metrics_));
    proto::append_text(scope, 3, words_[kMetricsSchemaUrl]);
    proto::Bytes inner;
    proto::append_text(inner, 1, resource);
    proto::append_message(inner, 2, scope);
    proto::append_text(inner, 3, words_[kMetricsSchemaUrl]);
    proto::Bytes request;
    proto::append_message(request, 1, inner);
    return request;
  }

  HeartbeatVocabulary words_;
  proto::Bytes metrics_;
};

}  // namespace otel_straggler
