// From events of the GPU to numbers: by run, and by kernel and section. Knows nothing of CUPTI's
// functions and reads no clock. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "otel_straggler/cupti/kernel_stats.hpp"
#include "otel_straggler/cupti/launches.hpp"
#include "otel_straggler/cupti/marks.hpp"
#include "otel_straggler/cupti/parked.hpp"
#include "otel_straggler/cupti/progress.hpp"
#include "otel_straggler/cupti/run_totals.hpp"
#include "otel_straggler/cupti/sampling.hpp"
#include "otel_straggler/cupti/walk.hpp"
#include "otel_straggler/record.hpp"

namespace otel_straggler::cupti {

// How it is known which run launched a kernel: by marks that CUPTI records, by marks at which CUPTI
// calls us, or by a call at every launch.
enum class Way : std::uint8_t { kMarks, kCallbacks, kLaunches };

// What has become of the events so far.
struct PipelineCounts {
  std::uint64_t events = 0;        // kernels, copies, sets, graphs
  std::uint64_t invalid = 0;       // without timestamps, or ended before they began
  std::uint64_t early = 0;         // from before tracing was set up: another clock
  std::uint64_t attributed = 0;    // launched in a run, known which
  std::uint64_t outside = 0;       // launched while no run was open
  std::uint64_t lost = 0;          // launched in a run, unknown which
  std::uint64_t late = 0;          // of runs that had been handed out
  std::uint64_t dropped = 0;       // by CUPTI, or in buffers that made no sense
  std::uint64_t timed_runs = 0;
  std::uint64_t missing_runs = 0;  // numbers that did not come, or not whole
};

class Pipeline {
 public:
  static constexpr std::int64_t kPatienceNs = 2'000'000'000;
  static constexpr std::size_t kMaxParked = ParkedKernels::kMax;
  static constexpr std::size_t kMaxWaiting = 65'536;

  Pipeline(Way way, RunDirectory& directory, Marks& marks, Launches& launches)
      : way_(way), directory_(&directory), marks_(&marks), launches_(&launches) {}

  // Tracing is on from now on. Args: monotonic time, and the clock that records use.
  // may_miss_graphs: the kernels of a graph may have no records, and the graph none either.
  void begin(std::int64_t now_ns, std::uint64_t wall_ns, bool may_miss_graphs = false) {
    may_miss_graphs_ = may_miss_graphs;
    idle_since_ns_ = std::exchange(traced_until_ns_, kOpen);
    traced_since_ns_ = now_ns;
    not_before_ns_ = wall_ns;
    complete_until_ns_ = 0;
    attributed_before_ = counts_.attributed;
    marks_->restart();
    parked_.clear();
    windows_.clear();
    progress_ = Progress();
  }

  // Kernel records were switched on or off; in order, before runs that ended after it are added.
  void learn(const Switch& one) { windows_.learn(one); }

  // All records of what was launched up to then have come back, and were processed.
  void complete_until(std::int64_t time_ns) {
    const bool is_settled = !has_marks() || marks_->known() == marks_->issued();
    if (is_settled && parked_.size() == 0) complete_until_ns_ = time_ns;
  }

  // Runs that began before are not whole.
  void count_runs_from(std::int64_t now_ns) { traced_since_ns_ = now_ns; }

  void end(std::int64_t now_ns) {
    if (traced_until_ns_ == kOpen) traced_until_ns_ = now_ns;
  }

  // What follows had all come back by now.
  void begin_poll() { names_.begin_poll(); }

  // Some of what CUPTI gave back, the marks first. now_ns: not before all of it had come.
  void process(const MarkEvent* marks, std::size_t mark_count, const GpuEvent* events,
               std::size_t event_count, std::int64_t now_ns) {
    runs_.set_now(now_ns);
    for (std::size_t at = 0; at < mark_count; ++at) {
      marks_->learn(marks[at].id, marks[at].correlation, now_ns);
    }
    // A worker that was held up reads much before the next tend().
    if (mark_count > 0 && parked_.size() >= kMaxParked / 2) retry(now_ns);
    for (std::size_t at = 0; at < event_count; ++at) {
      if (at + kAhead < event_count) names_.prefetch(events[at + kAhead].name);
      observe(events[at], now_ns);
    }
  }

  // A moment has passed: once all that had come back was processed.
  void tend(std::int64_t now_ns) {
    progress_.record(now_ns, newest());
    marks_->tend(now_ns);
    retry(now_ns);
    const std::uint64_t evicted = runs_.evicted();
    if (std::exchange(evicted_, evicted) != evicted) flawed_until_ns_ = now_ns;
  }

  // All that CUPTI had ready was processed.
  void flushed() {
    progress_.flushed();
    for (Waiting& waiting : waiting_) {
      if (waiting.ready_after_flush != kNever) continue;
      if (!is_beyond(waiting.record)) break;  // nor is the GPU beyond later ones
      waiting.ready_after_flush = progress_.flushes() + 1;
    }
  }

  // Records are missing, of whatever run was open lately.
  void count_dropped(std::uint64_t records, std::int64_t now_ns) {
    if (records == 0) return;
    counts_.dropped += records;
    flawed_until_ns_ = now_ns;
  }

  // Ended runs, in order. They wait here for their numbers, as long as a caller drains them: call
  // drain_ready() after each. What CUDA events have measured of them they keep, unless kernels were.
  void add(const Record* records, std::size_t count) {
    for (std::size_t at = 0; at < count; ++at) waiting_.push_back({records[at], kNever});
  }

  // Appends the oldest runs whose numbers are there, or are not waited for any longer.
  void drain_ready(std::int64_t now_ns, std::vector<Record>& out) {
    while (!waiting_.empty()) {
      GpuState state = state_of(waiting_.front(), now_ns);
      if (state == GpuState::kAwaited && waiting_.size() > kMaxWaiting) state = GpuState::kMissing;
      if (state == GpuState::kAwaited) return;
      hand_out(waiting_.front().record, state, out);
      waiting_.pop_front();
    }
  }

  // All that waits, with what numbers there are: at the end, after the last flush.
  // is_complete: the GPU has ended all that was launched, and all of it was given back.
  void drain_all(bool is_complete, std::int64_t now_ns, std::vector<Record>& out) {
    for (Waiting& waiting : waiting_) {
      GpuState state = state_of(waiting, now_ns);
      if (state == GpuState::kAwaited) state = is_complete ? at_end(waiting) : GpuState::kMissing;
      hand_out(waiting.record, state, out);
    }
    waiting_.clear();
  }

  std::size_t waiting() const { return waiting_.size(); }
  std::uint64_t windows() const { return windows_.opened(); }
  const ParkedKernels& parked() const { return parked_; }
  const PipelineCounts& counts() const { return counts_; }
  KernelStats& stats() { return stats_; }
  const KernelNames& names() const { return names_; }
  RunTable& runs() { return runs_; }

 private:
  static constexpr std::int64_t kOpen = INT64_MAX;
  static constexpr std::uint64_t kNever = UINT64_MAX;
  static constexpr std::size_t kAhead = 8;  // events; until memory that is asked for is there

  struct Waiting {
    Record record;
    std::uint64_t ready_after_flush;  // kNever until the GPU is seen to be beyond the run
  };

  // --- events ------------------------------------------------------------------------------------

  void observe(const GpuEvent& event, std::int64_t now_ns) {
    ++counts_.events;
    const bool is_valid =
        event.start_ns != 0 && event.end_ns != 0 && event.start_ns <= event.end_ns;
    if (!is_valid) {
      ++counts_.invalid;
    } else if (event.start_ns < not_before_ns_) {
      ++counts_.early;
      return;
    }
    const std::uint32_t kernel = number_of(event);
    const Answer answer = find(event.correlation);
    if (answer.knowledge == Knowledge::kNotYet && !parked_.is_full()) {
      parked_.push({event, marks_->place_of(event.correlation), kernel, is_valid, now_ns});
    } else {
      count(event, kernel, is_valid, answer, now_ns);
    }
  }

  void retry(std::int64_t now_ns) {
    parked_.poll(marks_->reach(), now_ns - kPatienceNs,
                 [this, now_ns](ParkedKernel& one) { return settle(one, now_ns); });
  }

  // Whether it waits no longer.
  bool settle(ParkedKernel& parked, std::int64_t now_ns) {
    const Answer answer = find(parked.event.correlation);
    if (answer.knowledge == Knowledge::kNotYet && now_ns - parked.since_ns < kPatienceNs) {
      parked.id = marks_->place_of(parked.event.correlation);
      return false;
    }
    count(parked.event, parked.kernel, parked.is_valid, answer, parked.since_ns);
    return true;
  }

  Answer find(std::uint32_t correlation) {
    return has_marks() ? marks_->find(correlation) : launches_->find(correlation);
  }

  WideId widen(std::uint32_t correlation) {
    if (has_marks()) return marks_->widen(correlation);
    const WideId id = widen_near(newest_, correlation);
    newest_ = std::max(newest_, id);
    return id;
  }

  std::uint32_t newest() const {
    return has_marks() ? marks_->issued() : launches_->newest();
  }

  std::uint32_t number_of(const GpuEvent& event) {
    switch (event.kind) {
      case kMemcpy: return names_.of_memcpy();
      case kMemset: return names_.of_memset();
      case kGraphTrace: return names_.of_graph();
      default: return names_.number_of(event.name);
    }
  }

  // back_ns: when it had come back; the run that launched it began before.
  void count(const GpuEvent& event, std::uint32_t kernel, bool is_valid, const Answer& answer,
             std::int64_t back_ns) {
    progress_.saw(event.device, event.stream, widen(event.correlation));
    std::uint32_t section = kNoSection;
    if (answer.knowledge == Knowledge::kKnown) {
      ++counts_.attributed;
      section = directory_->section_of(answer.run);
      put_into_run(event, kernel, is_valid, answer.run);
    } else if (answer.knowledge == Knowledge::kUnattributed) {
      ++counts_.outside;
    } else {
      ++counts_.lost;
      flawed_until_ns_ = std::max(flawed_until_ns_, back_ns);
    }
    if (!is_valid) return;
    const KernelClass its = names_.class_of(kernel);
    stats_.add(kernel, static_cast<std::uint32_t>(its), section, event.end_ns - event.start_ns);
  }

  void put_into_run(const GpuEvent& event, std::uint32_t kernel, bool is_valid, Run run) {
    bool is_late = false;
    RunTotals* const totals = runs_.receiver(run, is_late);
    counts_.late += is_late ? 1U : 0U;
    if (totals == nullptr) return;
    if (!is_late && event.kind == kConcurrentKernel) ++totals->seen;
    if (is_valid) {
      totals->add(names_.class_of(kernel), event.device, {event.start_ns, event.end_ns});
    } else {
      totals->is_flawed = true;
    }
  }

  // --- runs --------------------------------------------------------------------------------------

  GpuState state_of(Waiting& waiting, std::int64_t now_ns) {
    const Record& record = waiting.record;
    const bool is_before = record.start_ns >= idle_since_ns_ && record.end_ns <= traced_since_ns_;
    if (is_before || record.start_ns >= traced_until_ns_) return GpuState::kOff;
    if (run_of(record.span) == kNoRun) return GpuState::kMissing;  // one in four billion
    if (has_marks() && directory_->is_elsewhere(run_of(record.span))) return GpuState::kOff;
    if (record.start_ns < traced_since_ns_ || record.end_ns > traced_until_ns_) {
      return GpuState::kMissing;
    }
    if (!windows_.hold(record)) return GpuState::kOff;
    if (record.start_ns < flawed_until_ns_) return GpuState::kMissing;
    const bool is_late = now_ns - record.end_ns >= kPatienceNs;
    std::uint32_t outstanding = 0;
    if (can_count(record, outstanding)) {
      if (outstanding == 0) return timed(waiting);
      return is_late ? GpuState::kMissing : GpuState::kAwaited;
    }
    if (record.end_ns <= complete_until_ns_) return timed(waiting);
    if (is_late) return is_beyond(record) ? timed(waiting) : GpuState::kMissing;
    return progress_.flushes() >= waiting.ready_after_flush ? timed(waiting) : GpuState::kAwaited;
  }

  // Everything is reported to have come back.
  GpuState at_end(const Waiting& waiting) {
    std::uint32_t outstanding = 0;
    const bool is_short = can_count(waiting.record, outstanding) && outstanding != 0;
    return is_short ? GpuState::kMissing : timed(waiting);
  }

  // Not before a kernel was attributed since tracing began: what none is seen in may be all there is.
  GpuState timed(const Waiting& waiting) {
    if (counts_.attributed == attributed_before_) return GpuState::kMissing;
    const RunTotals* totals = runs_.find(run_of(waiting.record.span));
    const bool is_empty = totals == nullptr || totals->kernels == 0;
    if (is_empty && may_miss_graphs_) return GpuState::kMissing;
    return totals != nullptr && totals->is_flawed ? GpuState::kMissing : GpuState::kTimed;
  }

  // Whether it is known how many of the run's launches have not come back: where launches are
  // counted, and none was a graph's. Runs inside it were handed out before: they ended earlier.
  bool can_count(const Record& record, std::uint32_t& outstanding) {
    if (has_marks()) return false;
    const Run run = run_of(record.span);
    const RunTotals* totals = runs_.find(run);
    const std::uint32_t launched = directory_->launched(run);
    if ((launched & RunDirectory::kHasGraphs) != 0) return false;
    if (totals != nullptr && totals->is_in_doubt) return false;
    outstanding = launched - (totals == nullptr ? 0 : totals->seen);
    return true;
  }

  bool has_marks() const { return way_ != Way::kLaunches; }

  bool is_beyond(const Record& record) {
    std::uint32_t newest = 0;
    const bool is_recorded = directory_->newest_at_end(run_of(record.span), newest);
    if (!is_recorded && !progress_.newest_at(record.end_ns, newest)) return false;
    WideId id = widen_near(newest_, newest);
    if (has_marks() && !marks_->id_of(newest, id)) return false;
    // A mark may have come, and with it kernels of after it, but those parked for it not been
    // asked.
    return parked_.first() > id && progress_.is_beyond(id);
  }

  void hand_out(Record& record, GpuState state, std::vector<Record>& out) {
    const Run run = run_of(record.span);
    const GpuSlot by_events = record.gpu;
    record.gpu = GpuSlot{};
    record.gpu.state = state;
    if (state == GpuState::kTimed) {
      fill(record.gpu, runs_.find(run));
      ++counts_.timed_runs;
    } else if (by_events.state != GpuState::kOff) {
      record.gpu = by_events;
    }
    counts_.missing_runs += record.gpu.state == GpuState::kMissing ? 1U : 0U;
    if (state != GpuState::kOff && run != kNoRun) {
      runs_.pass_on(run, run_of(record.parent));
      const bool is_inside = record.parent != kNoSpan && state == GpuState::kMissing;
      if (is_inside) runs_.at(run_of(record.parent)).is_in_doubt = true;
    }
    out.push_back(record);
  }

  static void fill(GpuSlot& slot, RunTotals* totals) {
    if (totals == nullptr) return;
    slot.kernel_time_ns = static_cast<std::int64_t>(totals->kernel_ns);
    slot.busy_time_ns = static_cast<std::int64_t>(totals->busy_ns());
    slot.nccl_time_ns = static_cast<std::int64_t>(totals->nccl_ns);
    slot.kernel_count = totals->kernels;
  }

  Way way_;
  RunDirectory* directory_;
  Marks* marks_;
  Launches* launches_;
  KernelNames names_;
  KernelStats stats_;
  RunTable runs_;
  Progress progress_;
  ParkedKernels parked_;
  RecordedWindows windows_;
  std::deque<Waiting> waiting_;
  PipelineCounts counts_;
  WideId newest_ = kFirstWideId;
  std::uint64_t evicted_ = 0;
  std::uint64_t attributed_before_ = 0;
  bool may_miss_graphs_ = false;
  std::uint64_t not_before_ns_ = 0;
  std::int64_t idle_since_ns_ = 0;  // until tracing was begun, the last time
  std::int64_t traced_since_ns_ = kOpen;
  std::int64_t traced_until_ns_ = 0;
  std::int64_t flawed_until_ns_ = 0;
  std::int64_t complete_until_ns_ = 0;
};

}  // namespace otel_straggler::cupti
