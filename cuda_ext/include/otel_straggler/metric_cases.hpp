// What a scan of metrics has learned: who sent, what describes a sender, what texts and sections
// are called. What it has not learned, it asks.
#pragma once

#include <string>

#include "otel_straggler/cases.hpp"
#include "otel_straggler/point_attributes.hpp"
#include "otel_straggler/scan_columns.hpp"

namespace otel_straggler {

inline constexpr std::size_t kMaxPointSenders = 131'072;
inline constexpr std::size_t kMaxPointNames = 16'384;
inline constexpr std::size_t kMaxKernelCells = 65'536;

class MetricCases {
 public:
  // Answers: a code, or kNoCode; of a sender that is none, what becomes of its points.
  // Unrequested ones are ignored.
  void learn(AskedOfPoints asked, std::uint32_t number, std::int32_t code, std::uint8_t use) {
    if (code >= static_cast<std::int32_t>(kMaxPointSenders) || use >= kUses) return;
    switch (asked) {
      case AskedOfPoints::kSender: senders_.answer(number, {code, use}); break;
      case AskedOfPoints::kDescription: descriptions_.answer(number, code); break;
      case AskedOfPoints::kSection: sections_.answer(number, code); break;
      case AskedOfPoints::kCell: cells_.answer(number, code); break;
      default: texts_.answer(number, code); break;
    }
  }

  void begin(std::vector<PointQuestion>& questions) {
    questions_ = &questions;
    ++pass_;
    asked_bytes_ = 0;
    is_full_ = false;
  }

  // Whether there was no room for a case since begin(); then nothing else here means anything.
  bool is_full() const { return is_full_; }

  // What follows is of this resource. It is asked about even if no point follows: whether it is a
  // resource at all is seen there.
  void enter(Bytes resource) {
    resource_ = resource;
    const std::uint32_t number = resources_.number_of(resource);
    if (!has_room(number)) return;
    resource_key_.assign(reinterpret_cast<const char*>(&number), sizeof number);
    sender_of({});
  }

  // The sender, if `who` is given on top of the resource; null if that is not known yet.
  const Sender* sender_of(const std::string& who) {
    return answer_of(senders_, AskedOfPoints::kSender, around_resource(who), resource_, who);
  }

  // The source with its full description; kNoCode if it is none, or not known yet.
  std::int32_t description_of(const std::string& info) {
    return code_of(answer_of(descriptions_, AskedOfPoints::kDescription, around_resource(info),
                             resource_, info));
  }

  std::int32_t section_of(const std::string& encoded) {
    return code_of(answer_of(sections_, AskedOfPoints::kSection, encoded, {}, encoded));
  }

  std::int32_t cell_of(const std::string& encoded) {
    return code_of(answer_of(cells_, AskedOfPoints::kCell, encoded, {}, encoded));
  }

  // Of an attribute as text of a heartbeat.
  std::int32_t text_of_beat(const PointAttributes& attributes, TextSlot slot) {
    Bytes pair;
    const Value* value = attributes.text(slot, pair);
    if (value == nullptr || value->kind != ValueKind::kText) return kNoCode;
    return text_of_value(AskedOfPoints::kText, value, pair);
  }

  // Of an attribute as the name of a count; it need not be there.
  std::int32_t counted_by(const PointAttributes& attributes, TextSlot slot) {
    Bytes pair;
    const Value* value = attributes.text(slot, pair);
    return text_of_value(AskedOfPoints::kCounted, value, pair);
  }

 private:
  static std::int32_t code_of(const std::int32_t* answer) {
    return answer == nullptr ? kNoCode : *answer;
  }

  bool has_room(std::uint32_t number) {
    is_full_ |= number == InternTable::kFull;
    return !is_full_;
  }

  const std::string& around_resource(const std::string& encoded) {
    return key_.assign(resource_key_).append(encoded);
  }

  // Null if there is none yet, or no room for the question.
  template <typename Answer>
  const Answer* answer_of(Cases<Answer>& cases, AskedOfPoints asked, const std::string& key,
                          Bytes context, const std::string& sample) {
    const std::uint32_t number = cases.number_of(bytes_of(key));
    if (!has_room(number)) return nullptr;
    if (cases.is_to_ask(number, pass_)) ask(asked, number, context, sample);
    return cases[number].is_known ? &cases[number].answer : nullptr;
  }

  // A resource of a megabyte may come with many points that each override it.
  void ask(AskedOfPoints asked, std::uint32_t number, Bytes context, const std::string& sample) {
    asked_bytes_ += context.size + sample.size();
    is_full_ |= asked_bytes_ > kMaxTextBytes;
    if (!is_full_) questions_->push_back({asked, number, text_of(context), sample});
  }

  std::int32_t text_of_value(AskedOfPoints asked, const Value* value, Bytes pair) {
    key_.assign(1, static_cast<char>(asked));
    sample_.clear();
    if (value != nullptr) {
      key_.push_back(static_cast<char>(value->kind));
      key_.append(reinterpret_cast<const char*>(&value->bits), sizeof value->bits);
      if (value->text.size > 0) {
        key_.append(reinterpret_cast<const char*>(value->text.data), value->text.size);
      }
      PointAttributes::append(pair, sample_);
    }
    return code_of(answer_of(texts_, asked, key_, {}, sample_));
  }

  InternTable resources_{kMaxPointSenders, kMaxTextBytes};
  Cases<Sender> senders_{kMaxPointSenders};
  Cases<std::int32_t> descriptions_{kMaxPointSenders};
  Cases<std::int32_t> texts_{kMaxPointNames};
  Cases<std::int32_t> sections_{kMaxPointNames};
  Cases<std::int32_t> cells_{kMaxKernelCells};
  std::uint64_t pass_ = 0;

  // Of the scan that is running.
  std::vector<PointQuestion>* questions_ = nullptr;
  Bytes resource_;
  std::string resource_key_;
  std::string key_;
  std::string sample_;
  bool is_full_ = false;
  std::size_t asked_bytes_ = 0;
};

}  // namespace otel_straggler
