// One way to determine which run launched a kernel: marks. At every boundary of a section the
// process makes a cheap driver call that CUPTI records; a kernel belongs to the mark before it, by
// correlation id.
//
// The id pushed around the call comes back with the call's correlation id: number of the mark, and
// the run that is current from there on. Marks may come back later than kernels launched after
// them, in any order, or never. Where CUPTI calls us at that driver call, instead of recording it,
// we hear of its id there and then.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "otel_straggler/cupti/current_run.hpp"
#include "otel_straggler/cupti/correlation.hpp"

namespace otel_straggler::cupti {

enum class Knowledge : std::uint8_t {
  kKnown,
  kNotYet,        // ask again when more has come back
  kUnattributed,  // it belongs to no run
  kLost,          // it belongs to one, but it is unknown to which
};

struct Answer {
  Knowledge knowledge;
  Run run;
};

class Marks {
 public:
  // On the thread that makes the mark: what to push around the call.
  std::uint64_t issue(Run run) noexcept {
    const std::uint32_t number = issued_.fetch_add(1, std::memory_order_acq_rel) + 1;
    return std::uint64_t{number} << 32 | run;
  }

  std::uint32_t issued() const noexcept { return issued_.load(std::memory_order_acquire); }

  // Before the first note().
  void expect_notes() {
    if (notes_ == nullptr) notes_ = std::make_unique<Note[]>(kNotes);
  }

  // On the thread that makes the mark, within the call: the mark has this correlation id.
  void note(std::uint64_t id, std::uint32_t correlation) noexcept {
    Note& place = notes_[(id >> 32) % kNotes];
    place.correlation.store(correlation, std::memory_order_relaxed);
    place.id.store(id, std::memory_order_release);
  }

  // The worker's: learns what was noted.
  void read_notes(std::int64_t now_ns) {
    if (notes_ == nullptr) return;
    for (std::uint32_t next = known_ + 1; static_cast<std::int32_t>(issued() - next) >= 0; ++next) {
      const Note& place = notes_[next % kNotes];
      const std::uint64_t id = place.id.load(std::memory_order_acquire);
      const auto ahead = static_cast<std::int32_t>(static_cast<std::uint32_t>(id >> 32) - next);
      if (ahead < 0) break;  // not yet
      if (ahead == 0) learn(id, place.correlation.load(std::memory_order_relaxed), now_ns);
    }
  }

  // The rest is the worker's. A mark has come back.
  void learn(std::uint64_t id, std::uint32_t correlation, std::int64_t now_ns) {
    const auto number = static_cast<std::uint32_t>(id >> 32);
    if (static_cast<std::int32_t>(number - known_) <= 0) return;  // of before a restart
    // Another client's, which pushed an id of the same kind around a call like ours.
    if (static_cast<std::int32_t>(number - issued()) > 0) return;
    if (number == known_ + 1) {
      append(number, correlation, run_of(id));
    } else {
      waiting_.emplace(number, Waiting{correlation, run_of(id), now_ns});
    }
    if (!waiting_.empty()) join();
  }

  // Of a kernel that was launched with this id.
  Answer find(std::uint32_t correlation) {
    if (marks_.empty()) {
      return {issued() == known_ ? Knowledge::kUnattributed : Knowledge::kNotYet, kNoRun};
    }
    const WideId id = widen_near(newest_, correlation);
    newest_ = std::max(newest_, id);
    if (id > marks_.back().id) {
      if (known_ != issued()) return {Knowledge::kNotYet, kNoRun};
      return answer(marks_.back());
    }
    if (id < marks_.front().id) {
      return {has_evicted_ ? Knowledge::kLost : Knowledge::kUnattributed, kNoRun};
    }
    if (!is_after(last_, id)) last_ = is_after(last_ + 1, id) ? last_ + 1 : place_before(id);
    return answer(marks_[last_]);
  }

  // Up to here kernels have an answer, in terms of place_of(); those of later ones are kNotYet.
  WideId reach() const {
    if (issued() == known_) return UINT64_MAX;
    return marks_.empty() ? 0 : marks_.back().id;
  }

  // Where a launch stands among the marks; 1 as long as there is none to count from.
  WideId place_of(std::uint32_t correlation) const {
    return marks_.empty() ? 1 : widen(correlation);
  }

  // Gives up marks that are overdue, and evicts the oldest.
  void tend(std::int64_t now_ns) {
    read_notes(now_ns);
    while (!waiting_.empty() && now_ns - waiting_.begin()->second.since_ns > kPatienceNs) {
      const std::uint32_t next = waiting_.begin()->first;
      if (!marks_.empty()) marks_.push_back({marks_.back().id, kNoRun, next - 1, true});
      lost_ += next - 1 - known_;
      known_ = next - 1;
      join();
    }
    if (marks_.size() > kMaxMarks) {
      marks_.erase(marks_.begin(), marks_.begin() + kMaxMarks / 2);
      has_evicted_ = true;
      last_ = 0;
    }
  }

  // After tracing was off: marks of before will not come any more.
  void restart() {
    marks_.clear();
    waiting_.clear();
    known_ = issued();
    has_evicted_ = false;
    last_ = 0;
  }

  // Whether this mark, or one after it, has come back; then its correlation id.
  bool id_of(std::uint32_t number, WideId& id) const {
    if (static_cast<std::int32_t>(known_ - number) < 0 || marks_.empty()) return false;
    const auto found = std::lower_bound(
        marks_.begin(), marks_.end(), number, [](const Mark& mark, std::uint32_t wanted) {
          return static_cast<std::int32_t>(mark.number - wanted) < 0;
        });
    id = found == marks_.end() ? marks_.back().id : found->id;
    return true;
  }

  WideId widen(std::uint32_t correlation) const { return widen_near(newest_, correlation); }
  std::uint32_t known() const { return known_; }
  std::uint64_t lost() const { return lost_; }

 private:
  static constexpr std::int64_t kPatienceNs = 2'000'000'000;
  static constexpr std::size_t kMaxMarks = 65'536;
  static constexpr std::uint32_t kNotes = 8'192;  // read ten times a second

  struct Note {
    std::atomic<std::uint64_t> id{0};
    std::atomic<std::uint32_t> correlation{0};
  };
  struct Mark {
    WideId id;
    Run run;
    std::uint32_t number;
    bool is_lost;  // stands for marks that never came
  };
  struct Waiting {
    std::uint32_t correlation;
    Run run;
    std::int64_t since_ns;
  };
  struct Later {  // numbers start again too
    bool operator()(std::uint32_t a, std::uint32_t b) const {
      return static_cast<std::int32_t>(a - b) < 0;
    }
  };

  static Answer answer(const Mark& mark) {
    if (mark.is_lost) return {Knowledge::kLost, kNoRun};
    return {mark.run == kNoRun ? Knowledge::kUnattributed : Knowledge::kKnown, mark.run};
  }

  // Moves those whose turn it is from waiting_ to marks_.
  void join() {
    for (auto next = waiting_.find(known_ + 1); next != waiting_.end();
         next = waiting_.find(known_ + 1)) {
      append(next->first, next->second.correlation, next->second.run);
      waiting_.erase(next);
    }
  }

  void append(std::uint32_t number, std::uint32_t correlation, Run run) {
    const WideId id = marks_.empty() ? kFirstWideId + correlation
                                     : widen_after(marks_.back().id, correlation);
    marks_.push_back({id, run, number, false});
    newest_ = marks_.size() == 1 ? id : std::max(newest_, id);
    known_ = number;
  }

  // Whether it belongs to the mark at this place.
  bool is_after(std::size_t place, WideId id) const {
    return place + 1 < marks_.size() && marks_[place].id < id && id < marks_[place + 1].id;
  }

  std::size_t place_before(WideId id) const {
    const auto found =
        std::upper_bound(marks_.begin(), marks_.end(), id,
                         [](WideId wanted, const Mark& mark) { return wanted < mark.id; });
    return static_cast<std::size_t>(found - marks_.begin()) - 1;
  }

  std::atomic<std::uint32_t> issued_{0};
  std::uint32_t known_ = 0;  // this one and all before it have come, or are given up
  std::vector<Mark> marks_;  // in order of their numbers, and so of their ids
  std::map<std::uint32_t, Waiting, Later> waiting_;
  WideId newest_ = kFirstWideId;
  std::size_t last_ = 0;  // where the last question was answered
  std::unique_ptr<Note[]> notes_;
  std::uint64_t lost_ = 0;
  bool has_evicted_ = false;
};

}  // namespace otel_straggler::cupti
