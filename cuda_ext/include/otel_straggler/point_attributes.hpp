// The attributes of a data point, read from bytes that metric_messages.hpp has checked.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "otel_straggler/metric_columns.hpp"
#include "otel_straggler/span_facts.hpp"

namespace otel_straggler {

// The attributes of one point, and what they mean.
class PointAttributes {
 public:
  // At most kMaxKeys keys.
  explicit PointAttributes(std::vector<PointKey> keys)
      : keys_(std::move(keys)), table_(keys_in(keys_)) {}

  void clear() { all_.clear(); }

  // Takes one that is_pair() has seen.
  void add(Bytes pair) {
    One one;
    Bytes text;
    one.pair = pair;
    read_pair(pair, text, one.value);
    std::uint16_t number = 0;
    if (table_.find(text, number) != nullptr) one.key = &keys_[number];
    all_.push_back(one);
  }

  // The value of the last with a key of this slot, and its bytes; null if there is none.
  const Value* text(TextSlot slot, Bytes& pair) const {
    const Value* found = nullptr;
    for (const One& one : all_) {
      if (one.key == nullptr || one.key->slot != slot) continue;
      found = &one.value;
      pair = one.pair;
    }
    return found;
  }

  // As a message Resource, appended: all of them, who sent, what names a section, or what names a
  // kernel and its section.
  void append_all(std::string& to) const {
    append_if(to, [](const One&) { return true; });
  }
  void append_who(std::string& to) const {
    append_if(to, [](const One& one) { return one.key != nullptr && one.key->identifies_sender; });
  }
  void append_section(std::string& to) const {
    append_if(to, [](const One& one) { return one.key != nullptr && one.key->identifies_section; });
  }
  void append_cell(std::string& to) const {
    append_if(to, [](const One& one) {
      return one.key != nullptr && (one.key->identifies_section || one.key->identifies_kernel);
    });
  }

  static void append(Bytes pair, std::string& to) {
    to.push_back(kAttributesTag);
    std::size_t size = pair.size;
    for (; size >= 0x80; size >>= 7) to.push_back(static_cast<char>(size | 0x80));
    to.push_back(static_cast<char>(size));
    if (pair.size > 0) to.append(reinterpret_cast<const char*>(pair.data), pair.size);
  }

 private:
  static constexpr char kAttributesTag = 1 << 3 | 2;

  struct One {
    Bytes pair;
    Value value;
    const PointKey* key = nullptr;
  };

  static std::vector<Key> keys_in(const std::vector<PointKey>& keys) {
    std::vector<Key> all;
    all.reserve(keys.size());
    for (const PointKey& key : keys) all.push_back({key.text, KeyRole::kShape, 0});
    return all;
  }

  template <typename Wanted>
  void append_if(std::string& to, Wanted wanted) const {
    for (const One& one : all_) {
      if (wanted(one)) append(one.pair, to);
    }
  }

  std::vector<PointKey> keys_;
  KeyTable table_;
  std::vector<One> all_;
};

}  // namespace otel_straggler
