// Spans of one shape differ only in ids, times and a few integers: one is laid out once, then
// copied, and what differs is written over it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "encode_names.hpp"
#include "ids.hpp"
#include "proto_write.hpp"

namespace otel_straggler::encoding {

// Integer attributes, in the order in which they are written.
enum Number : std::uint32_t {
  kStepNumber,
  kSeqNumber,
  kMicrobatchNumber,
  kTokensNumber,
  kKernelTimeNumber,
  kBusyTimeNumber,
  kNcclTimeNumber,
  kKernelCountNumber,
  kWaitTimeNumber,
  kFoldCountNumber,
  kFoldSumNumber,
  kFoldMinNumber,
  kFoldMaxNumber,
  kNumbers,
};
static_assert(static_cast<std::size_t>(kStepWord) == kStepNumber);
static_assert(static_cast<std::size_t>(kFoldMaxWord) == kFoldMaxNumber);

constexpr std::uint32_t bit(std::uint32_t number) { return 1U << number; }
inline constexpr std::uint32_t kAllNumbers = bit(kNumbers) - 1U;
// Further bits of SpanShape::fields.
inline constexpr std::uint32_t kHasParent = bit(kNumbers);
inline constexpr std::uint32_t kIsStep = bit(kNumbers + 1);
inline constexpr std::uint32_t kIsError = bit(kNumbers + 2);
inline constexpr std::uint32_t kIsKernelTimed = bit(kNumbers + 3);
inline constexpr std::uint32_t kIsEventTimed = bit(kNumbers + 4);
inline constexpr std::uint32_t kIsScoredStep = bit(kNumbers + 6);  // a step without sections
inline constexpr std::uint32_t kHasWaited = bit(kNumbers + 5) | bit(kWaitTimeNumber);

// What decides the layout of a span.
struct SpanShape {
  std::uint32_t section = 0;
  std::uint32_t parent_section = kNoSection;
  std::uint32_t phase = 0;
  std::uint32_t fields = 0;

  bool operator==(const SpanShape& other) const {
    return section == other.section && parent_section == other.parent_section &&
           phase == other.phase && fields == other.fields;
  }
};

// One span still as numbers. Ids as they stand on the wire, read little-endian.
struct SpanValues {
  TraceId trace{};
  std::uint64_t span = 0;
  std::uint64_t parent = 0;
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::array<std::uint64_t, kNumbers> numbers{};
};

// A span as bytes, with its tag and length, and where its values go.
class SpanTemplate {
 public:
  SpanTemplate(const SpanShape& shape, const Names& names, const Vocabulary& words)
      : shape_(shape) {
    widths_.fill(1);
    build(names, words);
  }

  // Bytes of a span with these values; makes room for integers longer than all before.
  std::size_t fit(const SpanValues& span, const Names& names, const Vocabulary& words) {
    bool is_wide_enough = true;
    for (std::uint32_t left = shape_.fields & kAllNumbers; left != 0; left &= left - 1) {
      const std::size_t at = lowest(left);
      const std::size_t size = proto::varint_size(span.numbers[at]);
      if (size > widths_[at]) {
        widths_[at] = static_cast<std::uint8_t>(size);
        is_wide_enough = false;
      }
    }
    if (!is_wide_enough) build(names, words);
    return bytes_.size();
  }

  // Appends a span that fits. `tail` is what stands behind the fields of all: more attributes.
  void append(proto::Bytes& out, const SpanValues& span, const proto::Bytes& tail) const {
    if (tail.empty()) {
      append_fixed(out, span, 0);
      return;
    }
    const std::size_t length = bytes_.size() - head_size_ + tail.size();
    proto::append_tag(out, 2, proto::kLength);
    proto::append_varint(out, length);
    append_fixed(out, span, head_size_);
    proto::append_bytes(out, proto::view_of(tail));
  }

 private:
  static std::size_t lowest(std::uint32_t bits) {
    return static_cast<std::size_t>(__builtin_ctz(bits));
  }

  void append_fixed(proto::Bytes& out, const SpanValues& span, std::size_t from) const {
    const std::size_t before = out.size();
    out.insert(out.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(from), bytes_.end());
    std::uint8_t* const row = out.data() + before;
    std::copy(span.trace.begin(), span.trace.end(), row + (trace_at_ - from));
    proto::put_fixed64(row + (span_at_ - from), span.span);
    if ((shape_.fields & kHasParent) != 0) {
      proto::put_fixed64(row + (parent_at_ - from), span.parent);
    }
    proto::put_fixed64(row + (start_at_ - from), span.start_ns);
    proto::put_fixed64(row + (end_at_ - from), span.end_ns);
    for (std::uint32_t left = shape_.fields & kAllNumbers; left != 0; left &= left - 1) {
      const std::size_t at = lowest(left);
      proto::put_varint(row + (numbers_at_[at] - from), widths_[at], span.numbers[at]);
    }
  }

  void build(const Names& names, const Vocabulary& words) {
    proto::Bytes body;
    trace_at_ = reserve_id(body, 1, 16);
    span_at_ = reserve_id(body, 2, 8);
    if ((shape_.fields & kHasParent) != 0) parent_at_ = reserve_id(body, 4, 8);
    const bool is_step = (shape_.fields & kIsStep) != 0;
    proto::append_text(body, 5,
                       is_step ? words[kStepSpanWord] : names.section(shape_.section).name);
    proto::append_tag(body, 6, proto::kVarint);
    proto::append_varint(body, kInternal);
    start_at_ = reserve_time(body, 7);
    end_at_ = reserve_time(body, 8);
    append_labels(body, names, words);
    for (std::uint32_t left = shape_.fields & kAllNumbers; left != 0; left &= left - 1) {
      const std::size_t at = lowest(left);
      numbers_at_[at] = reserve_number(body, words[at], widths_[at]);
    }
    append_end(body);
    bytes_.clear();
    proto::append_tag(bytes_, 2, proto::kLength);
    proto::append_varint(bytes_, body.size());
    head_size_ = bytes_.size();
    proto::append_bytes(bytes_, proto::view_of(body));
    move_by(head_size_);
  }

  void append_labels(proto::Bytes& body, const Names& names, const Vocabulary& words) const {
    if ((shape_.fields & kIsStep) == 0) {
      const SectionName& section = names.section(shape_.section);
      append_label(body, words[kSectionWord], section.name);
      append_label(body, words[kSectionKindWord], section.kind);
      if (shape_.parent_section != kNoSection) {
        const std::string& around = names.section(shape_.parent_section).name;
        if (!around.empty()) append_label(body, words[kSectionParentWord], around);
      }
    }
    if ((shape_.fields & kIsScoredStep) != 0) {
      append_label(body, words[kSectionWord], words[kStepSpanWord]);
    }
    append_label(body, words[kTimeBasisWord], words[basis()]);
    const std::string& phase = names.phase(shape_.phase);
    if (!phase.empty()) append_label(body, words[kPhaseWord], phase);
  }

  Word basis() const {
    if ((shape_.fields & kIsKernelTimed) != 0) return kCuptiBasisWord;
    if ((shape_.fields & kIsEventTimed) != 0) return kEventsBasisWord;
    return (shape_.fields & kHasWaited) != 0 ? kCollectiveBasisWord : kHostBasisWord;
  }

  static void append_label(proto::Bytes& body, const std::string& key, const std::string& text) {
    proto::Bytes value;
    proto::append_text(value, 1, text);
    proto::Bytes pair;
    proto::append_text(pair, 1, key);
    proto::append_message(pair, 2, value);
    proto::append_message(body, 9, pair);
  }

  void append_end(proto::Bytes& body) const {
    if ((shape_.fields & kIsError) != 0) {
      const proto::Bytes status = {3U << 3, kError};
      proto::append_message(body, 15, status);
    }
    proto::append_tag(body, 16, proto::kFixed32);
    for (unsigned place = 0; place < 4; ++place) {
      body.push_back(static_cast<std::uint8_t>(kFlags >> (8 * place)));
    }
  }

  static std::size_t reserve(proto::Bytes& body, std::size_t size) {
    body.resize(body.size() + size);
    return body.size() - size;
  }

  static std::size_t reserve_id(proto::Bytes& body, std::uint32_t field, std::size_t size) {
    proto::append_tag(body, field, proto::kLength);
    proto::append_varint(body, size);
    return reserve(body, size);
  }

  static std::size_t reserve_time(proto::Bytes& body, std::uint32_t field) {
    proto::append_tag(body, field, proto::kFixed64);
    return reserve(body, 8);
  }

  static std::size_t reserve_number(proto::Bytes& body, const std::string& key,
                                    std::size_t width) {
    proto::Bytes pair;
    proto::append_text(pair, 1, key);
    proto::append_tag(pair, 2, proto::kLength);
    proto::append_varint(pair, 1 + width);
    proto::append_tag(pair, 3, proto::kVarint);
    proto::append_tag(body, 9, proto::kLength);
    proto::append_varint(body, pair.size() + width);
    proto::append_bytes(body, proto::view_of(pair));
    return reserve(body, width);
  }

  void move_by(std::size_t size) {
    for (std::size_t* at : {&trace_at_, &span_at_, &parent_at_, &start_at_, &end_at_}) *at += size;
    for (std::size_t& at : numbers_at_) at += size;
  }

  static constexpr std::uint8_t kInternal = 1;
  static constexpr std::uint8_t kError = 2;
  // Sampled, random trace id, and "the parent is not remote" is known.
  static constexpr std::uint32_t kFlags = 0x103;

  SpanShape shape_;
  proto::Bytes bytes_;
  std::size_t head_size_ = 0;
  std::size_t trace_at_ = 0;
  std::size_t span_at_ = 0;
  std::size_t parent_at_ = 0;
  std::size_t start_at_ = 0;
  std::size_t end_at_ = 0;
  std::array<std::size_t, kNumbers> numbers_at_{};
  std::array<std::uint8_t, kNumbers> widths_{};
};

// The templates used so far, few at any time.
class Templates {
 public:
  Templates() = default;
  Templates(Templates&&) = default;  // a copy would point into the other's
  Templates& operator=(Templates&&) = default;

  // The reference holds until the next call.
  SpanTemplate& of(const SpanShape& shape, const Names& names, const Vocabulary& words) {
    Recent& recent = recent_[shape.section % kRecent];
    if (recent.found != nullptr && recent.shape == shape) return *recent.found;
    if (known_.size() >= kMax) clear();
    const auto [at, is_new] = known_.try_emplace(shape, shape, names, words);
    recent = {shape, &at->second};
    return at->second;
  }

  void clear() {
    known_.clear();
    recent_.fill({});
  }

  std::size_t size() const { return known_.size(); }

  static constexpr std::size_t kMax = 4096;

 private:
  static constexpr std::size_t kRecent = 256;

  struct Hash {
    std::size_t operator()(const SpanShape& shape) const {
      std::uint64_t mixed = shape.section;
      for (const std::uint32_t part : {shape.parent_section, shape.phase, shape.fields}) {
        mixed = (mixed ^ part) * 0x9E3779B97F4A7C15U;
        mixed ^= mixed >> 32;
      }
      return static_cast<std::size_t>(mixed);
    }
  };
  struct Recent {
    SpanShape shape{};
    SpanTemplate* found = nullptr;
  };

  std::unordered_map<SpanShape, SpanTemplate, Hash> known_;  // its elements do not move
  std::array<Recent, kRecent> recent_{};
};

}  // namespace otel_straggler::encoding
