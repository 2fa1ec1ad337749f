// OTLP trace requests -> columns.
//
// What a span means is decided elsewhere, once per distinct case: whose scope it is, who sends (a
// resource, with the attributes of a span that override it), and what a span of its shape is. A
// request with unknown cases gives questions in place of columns, each with a sample; once they are
// answered, the same request is scanned again.
//
// Safe to use from several threads: scans take turns.
#pragma once

#include <mutex>
#include <utility>

#include "otel_straggler/cases.hpp"
#include "otel_straggler/scan_columns.hpp"
#include "otel_straggler/span_facts.hpp"
#include "otel_straggler/span_template.hpp"

namespace otel_straggler {

inline constexpr std::size_t kMaxScopes = 16'384;
inline constexpr std::size_t kMaxSenders = 131'072;
inline constexpr std::size_t kMaxShapes = 16'384;

class Scanner {
 public:
  Scanner(std::vector<Key> keys, OwnOutcomes outcomes)
      : keys_(std::move(keys)), reader_(keys_), outcomes_(outcomes) {}
  Scanner(const Scanner&) = delete;
  Scanner& operator=(const Scanner&) = delete;

  Verdict scan(Bytes request, Columns& to) {
    const std::lock_guard<std::mutex> turn(lock_);
    to_ = &to;
    ++pass_;
    asked_bytes_ = 0;
    is_full_ = false;
    Field field;
    FieldReader reader(request);
    bool is_read = true;
    while (is_read && reader.next(field)) {
      if (field.is(1, WireType::kLength)) is_read = read_resource_spans(field.content);
    }
    if (is_full_) return Verdict::kFull;
    if (!to.gpu.basis.empty()) to.gpu.complete(to.size());
    return is_read && !reader.is_malformed() ? Verdict::kColumns : Verdict::kUnfamiliar;
  }

  // Answers. Unrequested ones are ignored.
  void learn_scope(std::uint32_t number, bool is_own) {
    const std::lock_guard<std::mutex> turn(lock_);
    scopes_.answer(number, is_own);
  }

  void learn_sender(std::uint32_t number, Sender sender) {
    const std::lock_guard<std::mutex> turn(lock_);
    const bool is_code = sender.source < static_cast<std::int32_t>(kMaxSenders);
    if (is_code && sender.outcome < kOutcomes) senders_.answer(number, sender);
  }

  void learn_shape(std::uint32_t number, const Judgement& judgement) {
    const std::lock_guard<std::mutex> turn(lock_);
    const bool is_code = judgement.section < static_cast<std::int32_t>(kMaxShapes);
    const bool has_slots = is_slot(judgement.step_slot) && is_slot(judgement.sequence_slot) &&
                           is_slot(judgement.tokens_slot) && are_slots(judgement.gpu_slots);
    if (is_code && has_slots && judgement.outcome < kOutcomes) shapes_.answer(number, judgement);
  }

 private:
  static constexpr std::uint32_t kNoShape = Templates::kNone;
  static constexpr std::size_t kMinSpanBytes = 48;  // with all that a row needs

  static bool is_slot(std::int32_t slot) {
    return slot >= kNoCode && slot < static_cast<std::int32_t>(kMaxNumbers);
  }

  static bool are_slots(const std::array<std::int32_t, 3>& slots) {
    return std::all_of(slots.begin(), slots.end(), [](std::int32_t slot) {
      return slot >= kNoNumberSlot && slot < static_cast<std::int32_t>(kMaxNumbers);
    });
  }

  // Takes one more part of a message: one after the other, as protobuf merges them. False if one
  // of them is no message by itself, though both together may be.
  static bool merge(Bytes& message, Bytes more, std::string& room) {
    if (message.size == 0) {
      message = more;
      return true;
    }
    if (!is_well_formed(message) || !is_well_formed(more)) return false;
    if (message.data != bytes_of(room).data) room = text_of(message);
    room += text_of(more);
    message = bytes_of(room);
    return true;
  }

  bool has_room(std::uint32_t number) {
    is_full_ |= number == InternTable::kFull;
    return !is_full_;
  }

  // A resource of a megabyte may come with many spans that each override it.
  void ask(Asked asked, std::uint32_t number, Bytes context, Bytes sample) {
    asked_bytes_ += context.size + sample.size;
    is_full_ |= asked_bytes_ > kMaxTextBytes;
    if (!is_full_) to_->questions.push_back({asked, number, text_of(context), text_of(sample)});
  }

  bool read_resource_spans(Bytes message) {
    resource_ = {};
    Field field;
    FieldReader first(message);
    while (first.next(field)) {
      if (field.is(1, WireType::kLength)) {
        if (!merge(resource_, field.content, resource_room_)) return false;
      } else if (field.is(3, WireType::kLength) && !is_utf8(field.content)) {
        return false;
      }
    }
    if (first.is_malformed() || !enter_resource()) return false;
    FieldReader second(message);
    while (second.next(field)) {
      if (field.is(2, WireType::kLength) && !read_scope_spans(field.content)) return false;
    }
    return true;
  }

  // Larger ones are not remembered; a full parser refuses them.
  bool enter_resource() {
    if (resource_.size > kMaxResourceBytes) return false;
    const std::uint32_t number = resources_.number_of(resource_);
    if (!has_room(number)) return false;
    resource_key_.assign(reinterpret_cast<const char*>(&number), sizeof number);
    resource_sender_ = senders_.number_of(bytes_of(resource_key_));
    if (!has_room(resource_sender_)) return false;
    if (senders_.is_to_ask(resource_sender_, pass_)) {
      ask(Asked::kSender, resource_sender_, resource_, {});
    }
    return !is_full_;
  }

  bool read_scope_spans(Bytes message) {
    scope_ = {};
    std::size_t spans = 0;
    Field field;
    FieldReader first(message);
    while (first.next(field)) {
      if (field.is(2, WireType::kLength)) {
        ++spans;
      } else if (field.is(1, WireType::kLength)) {
        if (!merge(scope_, field.content, scope_room_)) return false;
      } else if (field.is(3, WireType::kLength) && !is_utf8(field.content)) {
        return false;
      }
    }
    if (first.is_malformed()) return false;
    const std::uint32_t scope = scopes_.number_of(scope_);
    if (!has_room(scope)) return false;
    if (!scopes_[scope].is_known) {
      if (scopes_.is_to_ask(scope, pass_)) ask(Asked::kScope, scope, {}, scope_);
      return !is_full_;  // its spans are read once that is answered
    }
    is_own_ = scopes_[scope].answer;
    to_->make_room(std::min(spans, message.size / kMinSpanBytes));
    return read_spans(message);
  }

  bool read_spans(Bytes message) {
    Field field;
    FieldReader reader(message);
    while (reader.next(field)) {
      if (field.is(2, WireType::kLength) && !read_span(field.content)) return false;
    }
    return true;
  }

  bool read_span(Bytes span) {
    std::uint32_t shape = templates_.read(span, facts_, is_own_);
    const bool is_like_another = shape != kNoShape;
    if (!is_like_another && !reader_.read(span, facts_)) return false;
    if (!judge(span, shape)) return false;
    if (!is_like_another && shape != kNoShape) {
      templates_.learn(span, facts_, keys_, shape, is_own_);
    }
    return true;
  }

  // Decides over a span, in the order in which otlp/decode_spans.py does. False if there is no
  // room. `shape` is found, if it has to be examined.
  bool judge(Bytes span, std::uint32_t& shape) {
    if (!has_ids()) return count(outcomes_.bad_id);
    const std::uint32_t sender_number = sender_of(span);
    if (is_full_) return false;
    const auto& sender = senders_[sender_number];
    if (sender.is_known && sender.answer.source < 0) return count(sender.answer.outcome);
    if (!is_time(facts_.start_ns) || !is_time(facts_.end_ns)) return count(outcomes_.bad_time);
    if (facts_.end_ns <= facts_.start_ns) return count(outcomes_.duration_not_positive);
    if (shape == kNoShape) shape = number_of_shape();
    if (!has_room(shape)) return false;
    if (shapes_.is_to_ask(shape, pass_)) ask(Asked::kShape, shape, scope_, span);
    if (to_->questions.empty()) add(sender.answer.source, shapes_[shape].answer);
    return !is_full_;
  }

  bool count(std::uint8_t outcome) {
    ++to_->outcomes[outcome];
    return true;
  }

  bool has_ids() const {
    if (facts_.trace_id.size != 16 || facts_.span_id.size != 8) return false;
    const std::uint8_t* trace_id = facts_.trace_id.data;
    const bool has_trace = (load<std::uint64_t>(trace_id) | load<std::uint64_t>(trace_id + 8)) != 0;
    return has_trace && load<std::uint64_t>(facts_.span_id.data) != 0;
  }

  static bool is_time(std::uint64_t time_ns) {
    return time_ns > 0 && time_ns <= static_cast<std::uint64_t>(INT64_MAX);
  }

  std::uint32_t sender_of(Bytes span) {
    if (facts_.who.empty()) return resource_sender_;
    sender_key_.assign(facts_.who).append(resource_key_);
    const std::uint32_t number = senders_.number_of(bytes_of(sender_key_));
    if (has_room(number) && senders_.is_to_ask(number, pass_)) {
      ask(Asked::kSender, number, resource_, span);
    }
    return number;
  }

  std::uint32_t number_of_shape() {
    facts_.shape.push_back(is_own_ ? '\1' : '\0');
    return shapes_.number_of(bytes_of(facts_.shape));
  }

  void add(std::int32_t source, const Judgement& shape) {
    const auto end_ns = static_cast<std::int64_t>(facts_.end_ns);
    const auto start_ns = static_cast<std::int64_t>(facts_.start_ns);
    const std::int64_t step = step_of(shape);
    record_progress(source, step, end_ns);
    if (shape.section < 0) {
      count(shape.outcome);
      return;
    }
    count(outcomes_.row);
    const bool has_waited = shape.gpu_slots[1] != kNotReportedSlot;
    if (shape.basis == Basis::kCollective || (shape.basis == Basis::kEvents && has_waited)) {
      add_waited(shape, end_ns - start_ns);
    } else if (shape.basis != Basis::kHost) {
      add_gpu(shape, end_ns - start_ns);
    }
    to_->source.push_back(code_of(source, source_codes_, to_->sources));
    to_->section.push_back(code_of(shape.section, section_codes_, to_->sections));
    to_->step.push_back(step);
    to_->start_ns.push_back(start_ns);
    to_->duration_s.push_back(static_cast<double>(end_ns - start_ns) * 1e-9);
    to_->sequence.push_back(sequence_of(shape));
    const double tokens = tokens_of(shape);
    to_->tokens.push_back(tokens);
    to_->has_tokens |= tokens == tokens;
  }

  // As otlp/span_rules.py does.
  void add_gpu(const Judgement& shape, std::int64_t length_ns) {
    constexpr std::int64_t kMaxTimes = 10;
    constexpr std::int64_t kMaxMoreNs = 60'000'000'000;
    constexpr std::int64_t kLongestNs = (INT64_MAX - kMaxMoreNs) / kMaxTimes;
    const std::int64_t max_ns = std::min(length_ns, kLongestNs) * kMaxTimes + kMaxMoreNs;
    const std::size_t needed = shape.basis == Basis::kCupti ? 3 : 1;
    std::array<double, 3> seconds;
    seconds.fill(std::numeric_limits<double>::quiet_NaN());
    for (std::size_t i = 0; i < needed; ++i) {
      const std::int32_t slot = shape.gpu_slots[i];
      if (slot != kNotReportedSlot) seconds[i] = time_of(slot, max_ns);
    }
    const bool is_known = !std::isnan(seconds[0]) && (needed == 1 || !std::isnan(seconds[1]));
    if (is_known) to_->gpu.put(to_->size(), shape.basis, seconds);
  }

  // A thread waits within its span: longer is no wait. Events do not tell work and waiting apart.
  void add_waited(const Judgement& shape, std::int64_t length_ns) {
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    const std::int32_t slot = shape.gpu_slots[1];
    const double waited_s = slot == kNotReportedSlot ? kUnknown : time_of(slot, length_ns);
    if (std::isnan(waited_s)) return;
    const double length_s = static_cast<double>(length_ns) * 1e-9;
    to_->gpu.put(to_->size(), Basis::kCollective, {length_s, waited_s, kUnknown});
  }

  // Seconds; NaN and counted if it is no whole number of nanoseconds from 0 to the maximum.
  double time_of(std::int32_t slot, std::int64_t max_ns) {
    if (slot >= 0) {
      const Number& number = facts_.numbers[static_cast<std::size_t>(slot)];
      if (number.is_integer && number.integer >= 0 && number.integer <= max_ns) {
        return static_cast<double>(number.integer) * 1e-9;
      }
    }
    ++to_->gpu.refused;
    return std::numeric_limits<double>::quiet_NaN();
  }

  std::int64_t step_of(const Judgement& shape) const {
    if (shape.step_slot < 0) return shape.step;
    const Number& number = facts_.numbers[static_cast<std::size_t>(shape.step_slot)];
    return number.is_integer && number.integer >= 0 ? number.integer : kRowWithoutStep;
  }

  std::int64_t sequence_of(const Judgement& shape) const {
    if (shape.sequence == Judgement::Sequence::kFixed) return shape.fixed_sequence;
    if (shape.sequence == Judgement::Sequence::kNumber && shape.sequence_slot >= 0) {
      const Number& number = facts_.numbers[static_cast<std::size_t>(shape.sequence_slot)];
      if (number.is_integer) return number.integer;
    }
    return mix_ids(facts_.trace_id.data, facts_.span_id.data);
  }

  double tokens_of(const Judgement& shape) const {
    if (shape.tokens_slot < 0) return shape.tokens;
    const double size = facts_.numbers[static_cast<std::size_t>(shape.tokens_slot)].real;
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    return size >= 0.0 && std::isfinite(size) ? size : kUnknown;
  }

  std::int32_t code_of(std::int32_t number, Renumbered& codes, std::vector<std::int32_t>& table) {
    const auto next = static_cast<std::int32_t>(table.size());
    return codes.of(number, pass_, next, [&] { table.push_back(number); });
  }

  void record_progress(std::int32_t source, std::int64_t step, std::int64_t end_ns) {
    std::vector<Progress>& all = to_->progress;
    const auto next = static_cast<std::int32_t>(all.size());
    const std::int32_t at = progress_codes_.of(
        source, pass_, next, [&] { all.push_back({source, kRowWithoutStep, 0}); });
    Progress& progress = all[static_cast<std::size_t>(at)];
    progress.step = std::max(progress.step, step);
    progress.end_ns = std::max(progress.end_ns, end_ns);
  }

  std::mutex lock_;
  KeyTable keys_;
  SpanReader reader_;
  OwnOutcomes outcomes_;
  InternTable resources_{kMaxSenders, kMaxTextBytes};
  Cases<bool> scopes_{kMaxScopes};
  Cases<Sender> senders_{kMaxSenders};
  Cases<Judgement> shapes_{kMaxShapes};
  Templates templates_;
  Renumbered source_codes_;
  Renumbered section_codes_;
  Renumbered progress_codes_;
  std::uint64_t pass_ = 0;

  // Of the scan that is running.
  Columns* to_ = nullptr;
  Bytes resource_;
  Bytes scope_;
  std::string resource_room_;
  std::string scope_room_;
  std::string resource_key_;
  std::string sender_key_;
  std::uint32_t resource_sender_ = 0;
  bool is_own_ = false;
  bool is_full_ = false;
  std::size_t asked_bytes_ = 0;
  SpanFacts facts_;
};

}  // namespace otel_straggler
