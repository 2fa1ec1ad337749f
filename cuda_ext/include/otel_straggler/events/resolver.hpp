// Queries the driver for the times of events, and makes new ones ahead, on a thread that does not
// train.
//
// Nothing here waits for the GPU. Each call of the driver is made with the events' own context
// current: the documentation of cuEventCreate and cuEventElapsedTime names an invalid context among
// their errors. And in relaxed capture mode: otherwise asking about an event spoils a graph that
// another thread captures at that moment.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "otel_straggler/events/marker.hpp"
#include "otel_straggler/events/thread_runs.hpp"
#include "otel_straggler/events/waiting.hpp"

namespace otel_straggler::events {

// Makes contexts current in this thread, and what was current before again at its end.
class Visit {
 public:
  explicit Visit(const Api& api) : api_(&api) {}
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  ~Visit() { leave(); }

  Code enter(Context context) {
    if (context == now_) return kSuccess;
    leave();
    const Code code = api_->push_current(context);
    if (code != kSuccess) return code;
    now_ = context;
    mode_ = kRelaxedCapture;
    return api_->exchange_capture_mode(&mode_);
  }

 private:
  void leave() {
    if (now_ == nullptr) return;
    api_->exchange_capture_mode(&mode_);
    api_->pop_current(&now_);
    now_ = nullptr;
  }

  const Api* api_;
  Context now_ = nullptr;
  int mode_ = kRelaxedCapture;  // once entered: that of before
};

// One thread at a time.
class Resolver {
 public:
  Resolver(const Api& api, Budget& budget) : api_(&api), budget_(&budget) {}

  // One more thread whose runs are to be read. It lives as long as the process.
  void add(ThreadRuns& runs) { feeds_.push_back({&runs, {}}); }

  std::size_t feeds() const { return feeds_.size(); }

  // What is known now. Where the GPU is lost to the process, the driver is not called.
  Failure round(std::int64_t now_ns, bool is_lost, std::vector<Result>& results) {
    Failure failure;
    for (Feed& feed : feeds_) drain(feed, now_ns, results);
    if (is_lost) return give_all_up(results), failure;
    Visit visit(*api_);
    for (Feed& feed : feeds_) {
      if (feed.runs->is_stale.load()) {
        give_up(feed, results);
        continue;
      }
      resolve(feed, now_ns, visit, results, failure);
      if (failure.function == nullptr) make_ahead(*feed.runs, visit, failure);
      if (failure.function != nullptr) return give_all_up(results), failure;
    }
    return failure;
  }

  std::size_t pending() const {
    std::size_t count = 0;
    for (const Feed& feed : feeds_) count += feed.pending.size();
    return count;
  }

 private:
  static constexpr std::size_t kAhead = 32;

  struct Pending {
    Ended ended;
    std::int64_t since_ns;
  };
  struct Feed {
    ThreadRuns* runs;
    std::deque<Pending> pending;
  };

  static void drain(Feed& feed, std::int64_t now_ns, std::vector<Result>& results) {
    Ended ended;
    while (feed.runs->next_ended(ended)) {
      results.push_back({ended.span, ended.outcome, 0});
      if (ended.pair != nullptr) feed.pending.push_back({ended, now_ns});
    }
  }

  void resolve(Feed& feed, std::int64_t now_ns, Visit& visit, std::vector<Result>& results,
               Failure& failure) {
    if (feed.pending.empty()) return;
    busy_.clear();
    std::size_t kept = 0;
    for (std::size_t at = 0; at < feed.pending.size(); ++at) {
      const Pending one = feed.pending[at];
      Result result{one.ended.span, Outcome::kPending, 0};
      if (failure.function == nullptr) ask(one.ended, visit, result, failure);
      if (result.outcome == Outcome::kPending && now_ns - one.since_ns >= Waiting::kPatienceNs) {
        result.outcome = Outcome::kLate;
      }
      if (result.outcome == Outcome::kPending) {
        feed.pending[kept++] = one;
      } else {
        one.ended.pair->lane->give_back(one.ended.pair);
        results.push_back(result);
      }
    }
    feed.pending.resize(kept);
  }

  void ask(const Ended& ended, Visit& visit, Result& result, Failure& failure) {
    const Place place{ended.pair->lane->context(), ended.stream};
    if (std::find(busy_.begin(), busy_.end(), place) != busy_.end()) return;
    Code code = visit.enter(place.context);
    if (code != kSuccess) return refuse("cuCtxPushCurrent", code, result, failure);
    code = api_->query(ended.pair->end);
    if (meaning_of(code) == Meaning::kWait) return busy_.push_back(place);
    if (code != kSuccess) return refuse("cuEventQuery", code, result, failure);
    float ms = -1;
    code = api_->elapsed(&ms, ended.pair->begin, ended.pair->end);
    if (meaning_of(code) == Meaning::kWait) return;
    if (code != kSuccess) return refuse("cuEventElapsedTime", code, result, failure);
    const bool is_sound = std::isfinite(ms) && ms >= 0;
    result.outcome = is_sound ? Outcome::kTimed : Outcome::kRefused;
    result.busy_ns = is_sound ? std::llround(static_cast<double>(ms) * 1e6) : 0;
  }

  static void refuse(const char* function, Code code, Result& result, Failure& failure) {
    const Meaning meaning = meaning_of(code);
    result.outcome = meaning == Meaning::kCapture ? Outcome::kCapturing : Outcome::kRefused;
    if (meaning == Meaning::kEnd) failure = {function, code};
  }

  // Some more than are in use, so that the thread itself need not make any.
  void make_ahead(ThreadRuns& runs, Visit& visit, Failure& failure) {
    for (std::size_t at = 0; at < runs.lane_count(); ++at) {
      Lane& lane = runs.lane(at);
      for (std::size_t spare = lane.spare(); spare < kAhead; ++spare) {
        if (!lane.has_room()) break;
        Code code = visit.enter(lane.context());
        const char* const function = code == kSuccess ? "cuEventCreate" : "cuCtxPushCurrent";
        Pair* const pair = code == kSuccess ? lane.make(*api_, *budget_, code) : nullptr;
        if (meaning_of(code) == Meaning::kEnd) failure = {function, code};
        if (pair == nullptr) break;
        lane.give_back(pair);
      }
    }
  }

  void give_all_up(std::vector<Result>& results) {
    for (Feed& feed : feeds_) give_up(feed, results);
  }

  // Its events are left as they are: what the driver would do with them is undefined.
  static void give_up(Feed& feed, std::vector<Result>& results) {
    for (const Pending& one : feed.pending) {
      results.push_back({one.ended.span, Outcome::kRefused, 0});
    }
    feed.pending.clear();
  }

  struct Place {
    Context context;
    Stream stream;

    bool operator==(const Place& other) const {
      return context == other.context && stream == other.stream;
    }
  };

  const Api* api_;
  Budget* budget_;
  std::vector<Feed> feeds_;
  std::vector<Place> busy_;  // streams of one thread that have not come so far
};

}  // namespace otel_straggler::events
