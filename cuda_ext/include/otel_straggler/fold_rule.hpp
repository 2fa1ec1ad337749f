// Which sections are folded, so that a rank sends no more spans than its budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "encode_names.hpp"

namespace otel_straggler::encoding {

class FoldRule {
 public:
  // `spans_per_s` 0: nothing is ever folded.
  explicit FoldRule(std::uint64_t spans_per_s) : budget_(static_cast<double>(spans_per_s)) {}

  bool is_on() const { return budget_ > 0.0; }
  bool folds_any() const { return n_folded_ > 0; }
  bool folds(std::uint32_t name) const { return name < sections_.size() && sections_[name].folded; }

  // One run that could be folded; `group` is what it would be folded with.
  void count(std::uint32_t name, std::uint64_t group, std::int64_t end_ns) {
    if (name >= sections_.size()) sections_.resize(name + 1U);
    Section& section = sections_[name];
    if (section.batch != batch_ || section.group != group) {
      section.batch = batch_;
      section.group = group;
      ++section.groups;
    }
    ++section.runs;
    last_ns_ = end_ns;
    if (!has_begun_) begin_ns_ = end_ns;
    has_begun_ = true;
  }

  // Judges what was counted since the last time, before it is encoded.
  void decide(const Names& names) {
    ++batch_;
    if (!has_begun_) return;
    begin_ns_ = std::min(begin_ns_, last_ns_);
    const double lasted_ns = static_cast<double>(static_cast<std::uint64_t>(last_ns_) -
                                                 static_cast<std::uint64_t>(begin_ns_));
    const double elapsed_ns = std::max(kSecond, lasted_ns);
    fold_more(names, elapsed_ns);
    if (lasted_ns < kSecond) return;
    fold_less(names, elapsed_ns);
    for (Section& section : sections_) section.runs = section.groups = 0;
    begin_ns_ = last_ns_;
  }

 private:
  static constexpr double kSecond = 1e9;
  static constexpr double kQuietNs = 30e9;
  static constexpr double kMargin = 0.8;

  struct Section {
    std::uint64_t runs = 0;
    std::uint64_t groups = 0;
    std::uint64_t group = 0;
    std::uint64_t batch = 0;
    double quiet_ns = 0.0;
    bool folded = false;

    std::uint64_t saving() const { return runs - groups; }
  };

  double spans() const {
    std::uint64_t spans = 0;
    for (const Section& section : sections_) spans += section.folded ? section.groups : section.runs;
    return static_cast<double>(spans);
  }

  void fold_more(const Names& names, double elapsed_ns) {
    double rest = spans();
    if (rest * kSecond <= budget_ * elapsed_ns) return;
    std::vector<std::uint32_t> hot = where(false);
    sort(hot, names, true);
    for (const std::uint32_t name : hot) {
      Section& section = sections_[name];
      if (section.saving() == 0 || rest * kSecond <= budget_ * elapsed_ns) return;
      section.folded = true;
      section.quiet_ns = 0.0;
      ++n_folded_;
      rest -= static_cast<double>(section.saving());
    }
  }

  void fold_less(const Names& names, double elapsed_ns) {
    double rest = spans();
    std::vector<std::uint32_t> folded = where(true);
    sort(folded, names, false);
    for (const std::uint32_t name : folded) {
      Section& section = sections_[name];
      const double with = rest + static_cast<double>(section.saving());
      if (with * kSecond <= kMargin * budget_ * elapsed_ns) {
        section.quiet_ns += elapsed_ns;
        rest = with;
      } else {
        section.quiet_ns = 0.0;
      }
      if (section.quiet_ns >= kQuietNs) {
        section.folded = false;
        --n_folded_;
      }
    }
  }

  std::vector<std::uint32_t> where(bool folded) const {
    std::vector<std::uint32_t> found;
    for (std::uint32_t name = 0; name < sections_.size(); ++name) {
      if (sections_[name].folded == folded) found.push_back(name);
    }
    return found;
  }

  // By what folding saves; of equals the name that is first in the alphabet.
  void sort(std::vector<std::uint32_t>& found, const Names& names, bool max_first) const {
    std::sort(found.begin(), found.end(), [&](std::uint32_t a, std::uint32_t b) {
      const std::uint64_t left = sections_[a].saving();
      const std::uint64_t right = sections_[b].saving();
      if (left != right) return max_first ? left > right : left < right;
      return names.name_of(a) < names.name_of(b);
    });
  }

  double budget_;
  std::vector<Section> sections_;
  std::size_t n_folded_ = 0;
  std::uint64_t batch_ = 1;
  std::int64_t begin_ns_ = 0;
  std::int64_t last_ns_ = 0;
  bool has_begun_ = false;
};

}  // namespace otel_straggler::encoding
