// OTLP metrics requests -> heartbeats, times of sections and of kernels.
//
// As in scan.hpp, what a case means is decided elsewhere, once each: who sent (a resource, with the
// attributes of a point that override it), what describes it, what a section is called. A request
// with unknown cases gives questions in place of columns, each with a sample; once they are
// answered, the same request is scanned again.
//
// Safe to use from several threads: scans take turns.
#pragma once

#include <mutex>
#include <utility>

#include "otel_straggler/metric_cases.hpp"
#include "otel_straggler/metric_data.hpp"
#include "otel_straggler/metric_messages.hpp"
#include "otel_straggler/metric_readings.hpp"
#include "otel_straggler/section_times.hpp"

namespace otel_straggler {

struct MetricRules {
  std::vector<PointKey> keys;       // at most kMaxKeys
  std::vector<MetricRule> metrics;  // at most kMaxKeys; others are unknown
  std::vector<Unit> units;          // of section times
  OwnUses uses;
};

class MetricScanner {
 public:
  explicit MetricScanner(MetricRules rules)
      : rules_(std::move(rules)), names_(names_in(rules_)), attributes_(rules_.keys) {}
  MetricScanner(const MetricScanner&) = delete;
  MetricScanner& operator=(const MetricScanner&) = delete;

  Verdict scan(Bytes request, MetricColumns& to) {
    const std::lock_guard<std::mutex> turn(lock_);
    to_ = &to;
    cases_.begin(to.questions);
    Field field;
    FieldReader reader(request);
    bool is_read = true;
    while (is_read && reader.next(field)) {
      if (field.is(1, WireType::kLength)) is_read = read_resource_metrics(field.content);
    }
    if (cases_.is_full()) return Verdict::kFull;
    return is_read && !reader.is_malformed() ? Verdict::kColumns : Verdict::kUnfamiliar;
  }

  // See MetricCases::learn().
  void learn(AskedOfPoints asked, std::uint32_t number, std::int32_t code, std::uint8_t use) {
    const std::lock_guard<std::mutex> turn(lock_);
    cases_.learn(asked, number, code, use);
  }

 private:
  static KeyTable names_in(const MetricRules& rules) {
    std::vector<Key> names;
    names.reserve(rules.metrics.size());
    for (const MetricRule& rule : rules.metrics) names.push_back({rule.name, KeyRole::kShape, 0});
    return KeyTable(std::move(names));
  }

  // --- messages around points: each is false if a full parser should judge, or there is no room ---

  bool read_resource_metrics(Bytes message) {
    Bytes resource;
    int resources = 0;
    Field field;
    FieldReader first(message);
    while (first.next(field)) {
      if (field.type != WireType::kLength) continue;
      if (field.number == 1) {
        resource = field.content;
        if (++resources > 1) return false;  // in two parts, as no exporter sends it
      } else if (field.number == 2) {
        if (!is_message(field.content, MetricMessage::kScopeMetrics)) return false;
      } else if (field.number == 3) {
        if (!is_utf8(field.content)) return false;
      }
    }
    if (first.is_malformed() || resource.size > kMaxResourceBytes) return false;
    cases_.enter(resource);
    ++resource_pass_;
    readings_.clear();
    FieldReader second(message);
    while (!cases_.is_full() && second.next(field)) {
      if (field.is(2, WireType::kLength) && !read_scope_metrics(field.content)) return false;
    }
    return end_resource();
  }

  bool read_scope_metrics(Bytes message) {
    Field field;
    FieldReader reader(message);
    while (reader.next(field)) {
      if (field.is(2, WireType::kLength) && !read_points(field.content)) return false;
    }
    return true;
  }

  bool read_points(Bytes message) {
    MetricData metric;
    if (!read_metric(message, metric)) return false;
    if (metric.kind == DataKind::kNone) return true;
    std::uint16_t number = 0;
    const bool is_named = names_.find(metric.name, number) != nullptr;
    const MetricRule* rule = is_named ? &rules_.metrics[number] : nullptr;
    if (rule != nullptr && rule->role == MetricRole::kTimes && metric.has_times()) {
      return read_times_points(metric);
    }
    if (rule != nullptr && rule->role == MetricRole::kKernels) {
      if (metric.kind == DataKind::kExponential) return read_kernel_points(metric);
    } else if (rule != nullptr && rule->role != MetricRole::kTimes && metric.has_numbers()) {
      return read_number_points(*rule, metric.data);
    }
    to_->points[rules_.uses.unknown] += points_in(metric.data);
    return true;
  }

  // The source of the point whose attributes were read; kNoCode if it has none, or not yet.
  std::int32_t source_of_point() {
    who_.clear();
    attributes_.append_who(who_);
    const Sender* sender = cases_.sender_of(who_);
    if (sender == nullptr) return kNoCode;
    if (sender->source < 0) ++to_->points[sender->outcome];
    return sender->source;
  }

  // --- numbers ----------------------------------------------------------------------------------

  bool read_number_points(const MetricRule& rule, Bytes data) {
    Field field;
    FieldReader reader(data);
    while (!cases_.is_full() && reader.next(field)) {
      if (!field.is(1, WireType::kLength)) continue;
      attributes_.clear();
      const NumberValue value = read_number_point(field.content, attributes_);
      const std::int32_t source = source_of_point();
      if (source < 0) continue;
      const bool is_used = read_number(rule, value, reading_of(source));
      ++to_->points[is_used ? rules_.uses.used : rules_.uses.unknown];
    }
    return !cases_.is_full();
  }

  Reading& reading_of(std::int32_t source) {
    const auto next = static_cast<std::int32_t>(readings_.size());
    const std::int32_t at = reading_codes_.of(source, resource_pass_, next, [&] {
      readings_.emplace_back();
      readings_.back().who = who_;
      readings_.back().beat.source = source;
    });
    return readings_[static_cast<std::size_t>(at)];
  }

  bool read_number(const MetricRule& rule, const NumberValue& value, Reading& reading) {
    if (rule.role == MetricRole::kInfo) {
      reading.info.clear();
      attributes_.append_all(reading.info);
      return true;
    }
    if (!is_sensible(value, rule.largest)) return false;
    if (rule.role == MetricRole::kCounts) {
      const std::int32_t name = cases_.counted_by(attributes_, kCountsBy[rule.slot]);
      reading.count(rule.slot, name, value, rule.max_count);
      return true;
    }
    reading.beat.numbers[rule.slot] = value;
    for (std::size_t slot = 0; slot < kBeatTexts; ++slot) {
      const std::int32_t text = cases_.text_of_beat(attributes_, static_cast<TextSlot>(slot));
      if (text >= 0) reading.beat.texts[slot] = text;
    }
    return true;
  }

  // Makes a heartbeat of every sender that reported.
  bool end_resource() {
    for (Reading& reading : readings_) {
      if (cases_.is_full()) return false;
      if (reading.is_empty()) continue;
      reading.info += reading.who;  // which wins
      const std::int32_t described = cases_.description_of(reading.info);
      if (described >= 0) reading.beat.source = described;
      to_->beats.push_back(std::move(reading.beat));
    }
    return !cases_.is_full();
  }

  // --- times ------------------------------------------------------------------------------------

  bool read_times_points(const MetricData& metric) {
    const Temporality temporality = temporality_of(metric.data);
    const Unit* unit = temporality == Temporality::kOther ? nullptr : unit_of(metric.unit);
    const bool is_exponential = metric.kind == DataKind::kExponential;
    const bool is_cumulative = temporality == Temporality::kCumulative;
    Field field;
    FieldReader reader(metric.data);
    while (!cases_.is_full() && reader.next(field)) {
      if (!field.is(1, WireType::kLength)) continue;
      read_times_point(field.content, is_exponential, is_cumulative, unit);
    }
    return !cases_.is_full();
  }

  // `unit` is null if points make no sense, whatever their values.
  void read_times_point(Bytes message, bool is_exponential, bool is_cumulative, const Unit* unit) {
    attributes_.clear();
    HistogramPoint point = is_exponential ? read_exponential_point(message, attributes_)
                                          : read_histogram_point(message, attributes_);
    PointTimes times;
    times.is_cumulative = is_cumulative;
    times.source = source_of_point();
    if (times.source < 0) return;
    section_.clear();
    attributes_.append_section(section_);
    times.section = cases_.section_of(section_);
    const bool is_sensible = unit != nullptr && times.section >= 0 &&
                             read_times(point, is_exponential, unit->seconds, times);
    ++to_->points[is_sensible ? rules_.uses.times : rules_.uses.malformed];
    if (is_sensible) to_->times.push_back(std::move(times));
  }

  // --- kernels ----------------------------------------------------------------------------------

  bool read_kernel_points(const MetricData& metric) {
    const bool is_delta = temporality_of(metric.data) == Temporality::kDelta;
    const bool is_in_seconds = metric.unit.size == 0 || metric.unit == bytes_of("s");
    Field field;
    FieldReader reader(metric.data);
    while (!cases_.is_full() && reader.next(field)) {
      if (!field.is(1, WireType::kLength)) continue;
      read_kernel_point(field.content, is_delta, is_in_seconds);
    }
    return !cases_.is_full();
  }

  void read_kernel_point(Bytes message, bool is_delta, bool is_in_seconds) {
    attributes_.clear();
    HistogramPoint point = read_exponential_point(message, attributes_);
    PointTimes times;
    times.source = source_of_point();
    if (times.source < 0) return;
    if (!is_delta) {
      ++to_->points[rules_.uses.not_delta];
      return;
    }
    section_.clear();
    attributes_.append_cell(section_);
    const std::int32_t cell = cases_.cell_of(section_);
    const std::uint64_t count = point.count;
    const bool is_sensible =
        is_in_seconds && cell >= 0 && read_times(point, true, 1.0, times) && times.sum;
    ++to_->points[is_sensible ? rules_.uses.kernels : rules_.uses.malformed];
    if (is_sensible && count > 0) {
      append(to_->kernels, times, cell, static_cast<std::int64_t>(count));
    }
  }

  static void append(KernelColumns& to, const PointTimes& times, std::int32_t cell,
                     std::int64_t count) {
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    to.source.push_back(times.source);
    to.cell.push_back(cell);
    to.scale.push_back(times.buckets.scale.value_or(0));
    to.start_ns.push_back(times.start_ns);
    to.end_ns.push_back(times.end_ns);
    to.count.push_back(count);
    to.sum_s.push_back(times.sum.value_or(kUnknown));
    to.min_s.push_back(times.min_s.value_or(kUnknown));
    to.max_s.push_back(times.max_s.value_or(kUnknown));
    std::int32_t index = times.buckets.first;
    for (const std::int64_t runs : times.buckets.counts) {
      if (runs > 0) {
        to.index.push_back(index);
        to.runs.push_back(runs);
      }
      ++index;
    }
    to.ends.push_back(static_cast<std::int64_t>(to.index.size()));
  }

  const Unit* unit_of(Bytes name) const {
    for (const Unit& unit : rules_.units) {
      if (bytes_of(unit.name) == name) return &unit;
    }
    return nullptr;
  }

  std::mutex lock_;
  MetricRules rules_;
  KeyTable names_;
  PointAttributes attributes_;
  MetricCases cases_;
  Renumbered reading_codes_;
  std::uint64_t resource_pass_ = 0;

  // Of the scan that is running.
  MetricColumns* to_ = nullptr;
  std::string who_;
  std::string section_;
  std::vector<Reading> readings_;
};

}  // namespace otel_straggler
