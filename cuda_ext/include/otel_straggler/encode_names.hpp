// What the encoder must know by name: words of the wire (they come from semconv/, nothing is
// spelt here) and the names behind the numbers in records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace otel_straggler::encoding {

// Order in which otel_straggler/client/packing.py gives them. Keys of numbers come first, in
// the order of Number in encode_template.hpp.
enum Word : std::size_t {
  kStepWord,
  kSeqWord,
  kMicrobatchWord,
  kTokensWord,
  kKernelTimeWord,
  kBusyTimeWord,
  kNcclTimeWord,
  kKernelCountWord,
  kWaitTimeWord,
  kFoldCountWord,
  kFoldSumWord,
  kFoldMinWord,
  kFoldMaxWord,
  kFoldSketchWord,
  kSectionWord,
  kSectionKindWord,
  kSectionParentWord,
  kTimeBasisWord,
  kPhaseWord,
  kHostBasisWord,
  kCuptiBasisWord,
  kEventsBasisWord,
  kCollectiveBasisWord,
  kStepSpanWord,
  kSchemaUrlWord,
  kScopeNameWord,
  kScopeVersionWord,
  kWords,
};
using Vocabulary = std::array<std::string, kWords>;

inline constexpr std::uint32_t kMaxNames = 1U << 17;

struct SectionName {
  std::string name;
  std::string kind;
  std::uint32_t name_number = 0;  // sections of one name share it, whatever their kind
  bool is_known = false;
};

// Sections and phases by the numbers that records hold.
class Names {
 public:
  Names() { phases_.push_back({"", true}); }

  // False if the number is too large to be one.
  bool add_section(std::uint32_t id, std::string name, std::string kind) {
    if (id >= kMaxNames) return false;
    if (id >= sections_.size()) sections_.resize(id + 1U);
    const auto number = static_cast<std::uint32_t>(numbers_.size());
    const std::uint32_t found = numbers_.emplace(name, number).first->second;
    if (found == number) by_number_.push_back(name);
    sections_[id] = {std::move(name), std::move(kind), found, true};
    return true;
  }

  bool add_phase(std::uint32_t id, std::string text) {
    if (id >= kMaxNames) return false;
    if (id >= phases_.size()) phases_.resize(id + 1U);
    phases_[id] = {std::move(text), true};
    return true;
  }

  bool has_section(std::uint32_t id) const {
    return id < sections_.size() && sections_[id].is_known;
  }
  bool has_phase(std::uint32_t id) const { return id < phases_.size() && phases_[id].is_known; }

  // Only of numbers that are there.
  const SectionName& section(std::uint32_t id) const { return sections_[id]; }
  const std::string& phase(std::uint32_t id) const { return phases_[id].text; }
  const std::string& name_of(std::uint32_t name_number) const { return by_number_[name_number]; }

 private:
  struct Phase {
    std::string text;
    bool is_known = false;
  };

  std::vector<SectionName> sections_;
  std::vector<Phase> phases_;
  std::vector<std::string> by_number_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

}  // namespace otel_straggler::encoding
