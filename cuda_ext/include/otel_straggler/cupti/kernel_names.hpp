// Names of kernels to small numbers, a bounded number of them, and their classes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace otel_straggler::cupti {

enum class KernelClass : std::uint8_t { kCompute, kNccl, kMemory };
inline constexpr std::size_t kKernelClasses = 3;

// As in semconv/attributes.py, where each is explained; a test holds them together.
inline const std::vector<std::string>& communication_marks() {
  static const auto* const marks = new std::vector<std::string>{
      "nccldev",        "ncclkernel",          "ncclsymk",          "nvshmem",
      "deep_ep",        "rccl",                "msccl",             "cross_device_reduce",
      "all_reduce_kernel", "allreducekernel",  "allreduce_fusion",  "multimem_",
      "userbuffers"};
  return *marks;
}

// As people write it, if it is the name of a C++ function. Slow: for what is exported only.
inline std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> made(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && made != nullptr ? std::string(made.get()) : name;
}

class KernelNames {
 public:
  static constexpr std::size_t kMaxNames = 2'048;
  static constexpr std::size_t kMaxNameBytes = 4'096;
  static constexpr const char* kOther = "<other>";  // of each class, those without room

  explicit KernelNames(const std::vector<std::string>& marks = communication_marks())
      : marks_(marks), places_(kPlaces) {
    for (const KernelClass each :
         {KernelClass::kCompute, KernelClass::kNccl, KernelClass::kMemory}) {
      texts_.push_back(kOther);
      classes_.push_back(each);
    }
    memcpy_ = add("[memcpy]", KernelClass::kMemory);
    memset_ = add("[memset]", KernelClass::kMemory);
    graph_ = add("[cuda graph]", KernelClass::kCompute);
  }

  std::uint32_t of_memcpy() const { return memcpy_; }
  std::uint32_t of_memset() const { return memset_; }
  std::uint32_t of_graph() const { return graph_; }

  // More has come back: what lies where names lay may have changed since, because a module that is
  // loaded later may use the same place.
  void begin_poll() { ++poll_; }

  // The number of the name that lies at `name`; null: it has none. The place is remembered, and
  // its content is compared once per poll.
  std::uint32_t number_of(const char* name) {
    if (name == nullptr) return static_cast<std::uint32_t>(KernelClass::kCompute);
    std::size_t at = place_of(name);
    for (; places_[at].name != nullptr; at = (at + 1) & (kPlaces - 1)) {
      Place& place = places_[at];
      if (place.name != name) continue;
      if (place.last_poll == poll_) return place.number;
      place.last_poll = poll_;
      if (!is_still(place.number, name)) place.number = number_of_text(name);
      return place.number;
    }
    const std::uint32_t number = number_of_text(name);
    if (++used_ > kPlaces / 2) {
      places_.assign(kPlaces, Place());
      used_ = 1;
      at = place_of(name);
    }
    places_[at] = {name, number, poll_};
    return number;
  }

  // This name will be asked for soon.
  void prefetch(const char* name) const { __builtin_prefetch(&places_[place_of(name)]); }

  KernelClass class_of(std::uint32_t number) const { return classes_[number]; }
  const std::string& text(std::uint32_t number) const { return texts_[number]; }
  std::size_t size() const { return texts_.size(); }
  std::uint64_t left_out() const { return left_out_; }  // times a name met a full table

 private:
  static constexpr unsigned kPlaceBits = 15;
  static constexpr std::size_t kPlaces = std::size_t{1} << kPlaceBits;

  struct Place {
    const char* name = nullptr;
    std::uint32_t number = 0;
    std::uint32_t last_poll = 0;  // when it was last compared
  };

  static std::size_t place_of(const char* name) {
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(name) *
                                     std::uint64_t{0x9E37'79B9'7F4A'7C15U}) >>
                                    (64 - kPlaceBits));
  }

  // Names that found no room are not kept, so they cannot be compared.
  bool is_still(std::uint32_t number, const char* name) const {
    if (number < kKernelClasses) return true;
    const std::string& text = texts_[number];
    if (text.size() == kMaxNameBytes) return text == shortened(name);
    return std::strcmp(text.c_str(), name) == 0;
  }

  std::uint32_t number_of_text(const char* name) {
    const std::string text = shortened(name);
    const auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    const KernelClass its = class_of_name(text);
    if (texts_.size() >= kMaxNames + kKernelClasses) {
      ++left_out_;
      return static_cast<std::uint32_t>(its);
    }
    return add(text, its);
  }

  std::uint32_t add(const std::string& text, KernelClass its) {
    const auto number = static_cast<std::uint32_t>(texts_.size());
    texts_.push_back(text);
    classes_.push_back(its);
    numbers_.emplace(texts_.back(), number);
    return number;
  }

  // A long name by its beginning and a number made of all of it.
  static std::string shortened(const char* name) {
    const std::string_view whole(name);
    if (whole.size() < kMaxNameBytes) return std::string(whole);
    const std::string number = "~" + std::to_string(std::hash<std::string_view>()(whole));
    return std::string(whole.substr(0, kMaxNameBytes - number.size())) + number;
  }

  KernelClass class_of_name(const std::string& name) const {
    std::string lower = name;
    for (char& letter : lower) {
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    }
    for (const std::string& mark : marks_) {
      if (lower.find(mark) != std::string::npos) return KernelClass::kNccl;
    }
    const std::size_t first = std::min(lower.find_first_not_of('['), lower.size());
    for (const char* begin : {"memcpy", "memset", "cuda memcpy", "cuda memset"}) {
      if (lower.compare(first, std::strlen(begin), begin) == 0) return KernelClass::kMemory;
    }
    return KernelClass::kCompute;
  }

  std::vector<std::string> marks_;
  std::vector<Place> places_;
  std::size_t used_ = 0;
  std::uint32_t poll_ = 1;
  // By number; the first ones are <other>, one for each class.
  std::deque<std::string> texts_;
  std::vector<KernelClass> classes_;
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
  std::uint64_t left_out_ = 0;
  std::uint32_t memcpy_ = 0;
  std::uint32_t memset_ = 0;
  std::uint32_t graph_ = 0;
};

}  // namespace otel_straggler::cupti
