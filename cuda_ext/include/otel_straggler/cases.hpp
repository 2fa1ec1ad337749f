// Cases that are decided elsewhere, once each: the same bytes are the same case.
#pragma once

#include "otel_straggler/intern.hpp"

namespace otel_straggler {

inline constexpr std::size_t kMaxTextBytes = std::size_t{32} << 20;  // of cases of one kind
inline constexpr std::size_t kMaxResourceBytes = std::size_t{64} << 10;  // as in otlp/identity.py

enum class Verdict : std::uint8_t {
  kColumns = 0,     // or questions
  kUnfamiliar = 1,  // no request, or one that a full parser should judge
  kFull = 2,        // no room for so many different cases
};

// Cases by the bytes that make them what they are.
template <typename Answer>
class Cases {
 public:
  struct Case {
    bool is_known = false;
    std::uint64_t asked_in = 0;
    Answer answer{};
  };

  explicit Cases(std::size_t limit) : numbers_(limit, kMaxTextBytes) {}

  // InternTable::kFull if there is no room.
  std::uint32_t number_of(Bytes bytes) {
    const std::uint32_t number = numbers_.number_of(bytes);
    if (number != InternTable::kFull && number >= cases_.size()) cases_.emplace_back();
    return number;
  }

  const Case& operator[](std::uint32_t number) const { return cases_[number]; }

  // Whether to ask about it: once in a pass.
  bool is_to_ask(std::uint32_t number, std::uint64_t pass) {
    Case& one = cases_[number];
    if (one.is_known || one.asked_in == pass) return false;
    one.asked_in = pass;
    return true;
  }

  void answer(std::uint32_t number, const Answer& answer) {
    if (number >= cases_.size()) return;
    cases_[number].is_known = true;
    cases_[number].answer = answer;
  }

 private:
  InternTable numbers_;
  std::vector<Case> cases_;
};

}  // namespace otel_straggler
