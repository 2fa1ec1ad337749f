// Timing kernels by CUPTI: sets it up, drains its buffers, and has them counted off the
// training thread.
//
// What CUPTI calls runs on the training's threads and inside CUPTI's locks: it takes no lock of
// ours and throws nothing. No lock of ours is held while CUPTI is called. cuptiFinalize is never
// called: it would end other profilers' sessions too. A collector is never destroyed.
//
// Records of kernels cost microseconds a launch, so they are on in one step of N. Runs of all other
// steps have what the timer beneath this one has measured: CUDA events.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "otel_straggler/clocks.hpp"
#include "otel_straggler/cupti/buffers.hpp"
#include "otel_straggler/cupti/collector_face.hpp"
#include "otel_straggler/cupti/invalid_watch.hpp"
#include "otel_straggler/cupti/pipeline.hpp"
#include "otel_straggler/cupti/tracing.hpp"
#include "otel_straggler/cupti/rounds.hpp"
#include "otel_straggler/gpu_timer.hpp"
#include "otel_straggler/turn.hpp"

namespace otel_straggler::cupti {

class Collector final : public GpuTimer {
 public:
  // library: without a reason. Lives until the process ends.
  static Collector& make(Library library, const CollectorSettings& settings) {
    static auto* const all = new std::vector<Collector*>();
    static const int forked = ::pthread_atfork(nullptr, nullptr, [] { is_forked_.store(true); });
    static_cast<void>(forked);
    all->push_back(new Collector(std::move(library), settings));
    return *all->back();
  }

  // Sets everything up, from scratch each time, and begins to count. The answer is why not; empty:
  // kernels are timed now. is_known: it was stopped a moment ago by ourselves, and what had been
  // proven holds.
  std::string start(bool is_known = false) {
    if (is_forked_.load()) return "CUDA does not work in a forked child; start it by spawn";
    if (is_tracing()) return "";
    if (!pool_.has_memory()) return "there is no address space for the buffers; expected 64 MiB";
    Collector* const before = active_.load();
    if (before != nullptr && before->is_tracing()) return "kernels are timed here already";
    active_.store(this);  // who stopped before gets no buffer any more; its own stay where they are
    pool_.prepare(kSpareBuffers);
    const std::string reason = set_up();
    if (!reason.empty()) return reason;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const bool may_miss_graphs = settings_.times_whole_graphs && !tracing_.has_graphs();
      pipeline_.begin(monotonic_ns(), static_cast<std::uint64_t>(wall_ns()), may_miss_graphs);
      watch_ = InvalidWatch();
      if (!is_known) proof_.begin(pipeline_.counts());
      silent_flushes_ = 0;
    }
    if (!is_known) sampling_.set_probing(true);
    is_recording_ = false;
    is_tracing_.store(true, std::memory_order_release);
    if (sampling_.rate().is_always()) switch_records(true, kNoSpan);
    if (is_recording() && has_marks()) mark(current_.ambient());
    // Not before: the mark may have come after that of a run that has just begun.
    const std::lock_guard<std::mutex> lock(mutex_);
    pipeline_.count_runs_from(monotonic_ns());
    return "";
  }

  // Gives back what was taken of CUPTI, so that another profiler finds it free; waits for buffers
  // until `deadline_ns`. May be started again.
  void stop(std::int64_t deadline_ns) {
    if (is_forked_.load() || !is_tracing_.exchange(false)) return;
    switch_records(false, kNoSpan);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      pipeline_.end(monotonic_ns());
    }
    flush();
    tear_down();
    while (pool_.out() > 0 && monotonic_ns() < deadline_ns) {
      tracing_.api().flush_all(0);  // not flush(): it takes streams without kernels for idle ones
      drain();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  bool is_tracing() const { return is_tracing_.load(std::memory_order_relaxed); }
  bool is_recording() const { return is_recording_.load(std::memory_order_relaxed); }
  Way way() const { return way_.load(std::memory_order_relaxed); }

  // Once stopped, since the way in use attributes nothing: start() takes the next one. False if
  // there is none, and start() begins with the first one again.
  bool take_next_way() {
    const bool has_next = way() == Way::kMarks;
    way_ = has_next ? Way::kCallbacks : first_way_;
    return has_next;
  }

  // Any time. Kernel records that are always on are switched here, all others as steps begin.
  void set_rate(SamplingRate rate) {
    const bool was_always = sampling_.rate().is_always();
    sampling_.set(rate);
    if (!is_tracing() || was_always == rate.is_always()) return;
    switch_records(rate.is_always(), kNoSpan);
    if (is_recording() && has_marks()) mark(current_.ambient());
  }

  // What times the runs of steps without kernel records; null: nothing. Before this one is in use.
  void set_beneath(GpuTimer* timer) { beneath_.store(timer, std::memory_order_release); }

  // Another run is current in this thread: it has begun, or one inside it has ended. kNoSpan: none.
  // is_ambient: this thread speaks for the process; one thread does, the one that counts steps.
  // Cost: a few stores; with marks, three calls of CUPTI and the driver more.
  void boundary(bool is_ambient, std::uint64_t span, std::uint32_t section) noexcept {
    current_.set(is_ambient, span, section);
    if (!is_recording() || !has_marks() || is_forked_.load(std::memory_order_relaxed)) return;
    if (is_ambient) {
      mark(run_of(span));
    } else {
      boundaries_elsewhere_.fetch_add(1, std::memory_order_relaxed);
      if (run_of(span) != kNoRun) current_.directory().mark_elsewhere(run_of(span));
    }
  }

  void begun(bool is_ambient, std::uint64_t span, std::uint32_t section) noexcept override {
    if (GpuTimer* const beneath = beneath_.load(std::memory_order_acquire)) {
      beneath->begun(is_ambient, span, section);
    }
    if (is_ambient && !is_recording() && is_tracing() && may_sample(section)) {
      switch_records(true, span);
      sampled_run_ = is_recording() ? span : kNoSpan;
    }
    boundary(is_ambient, span, section);
  }

  void begun_step(std::uint64_t span, std::int64_t step) noexcept override {
    if (GpuTimer* const beneath = beneath_.load(std::memory_order_acquire)) {
      beneath->begun_step(span, step);
    }
    if (!is_recording() && is_tracing() && sampling_.wants_step(step)) {
      switch_records(true, span);
      sampled_run_ = is_recording() ? span : kNoSpan;
    }
    boundary(true, span, kStepSection);
  }

  void ended(bool is_ambient, std::uint64_t span, std::uint64_t now_span,
             std::uint32_t now_section) noexcept override {
    boundary(is_ambient, now_span, now_section);
    if (is_recording()) {
      current_.directory().record_end(run_of(span),
                                      has_marks() ? marks_.issued() : launches_.newest());
      if (is_ambient && span == sampled_run_) {
        sampled_run_ = kNoSpan;
        if (!sampling_.rate().is_always()) switch_records(false, span);
      }
    }
    if (GpuTimer* const beneath = beneath_.load(std::memory_order_acquire)) {
      beneath->ended(is_ambient, span, now_span, now_section);
    }
  }

  void add(const Record* records, std::size_t count) override {
    if (GpuTimer* const beneath = beneath_.load(std::memory_order_acquire)) {
      return beneath->add(records, count);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    pipeline_.add(records, count);
  }

  // Runs come from beneath first: what they wait for there has passed on the GPU, too.
  void drain_ready(std::int64_t now_ns, std::vector<Record>& out) override {
    std::vector<Record> from_beneath;
    if (GpuTimer* const beneath = beneath_.load(std::memory_order_acquire)) {
      beneath->drain_ready(now_ns, from_beneath);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    learn_switches();
    pipeline_.add(from_beneath.data(), from_beneath.size());
    pipeline_.drain_ready(now_ns, out);
  }

  void drain_all(bool is_complete, std::vector<Record>& out) override {
    std::vector<Record> from_beneath;
    if (GpuTimer* const beneath = beneath_.load(std::memory_order_acquire)) {
      beneath->drain_all(is_complete, from_beneath);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    learn_switches();
    pipeline_.add(from_beneath.data(), from_beneath.size());
    pipeline_.drain_all(is_complete, monotonic_ns(), out);
  }

  GpuLosses losses() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const PipelineCounts& counts = pipeline_.counts();
    return {counts.dropped, counts.invalid, counts.lost, counts.late};
  }

  // What was seen of each kernel since the last time. Cost: some microseconds for each name.
  std::vector<KernelSummary> drain_kernels() {
    std::vector<KernelSummary> kernels;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const KernelNames& names = pipeline_.names();
      for (KernelCell& cell : pipeline_.stats().drain()) {
        const std::uint32_t kernel = cell.kernel;
        kernels.push_back({names.text(kernel), names.class_of(kernel), std::move(cell)});
      }
    }
    for (KernelSummary& kernel : kernels) kernel.name = readable(kernel.name);
    return kernels;
  }

  CollectorState state() {
    CollectorState now;
    now.is_tracing = is_tracing();
    now.way = way();
    now.foreign_buffers = foreign_buffers_;
    now.declined_buffers = declined_buffers_;
    now.boundaries_elsewhere = boundaries_elsewhere_;
    now.buffers_out = pool_.out();
    now.buffers_touched = pool_.touched();
    const std::lock_guard<std::mutex> lock(mutex_);
    learn_switches();
    now.proof = proof_.state();
    now.windows = pipeline_.windows();
    now.counts = pipeline_.counts();
    now.garbage_buffers = garbage_buffers_;
    now.marks_lost = marks_.lost();
    now.silent_flushes = silent_flushes_;
    now.kernel_names = pipeline_.names().size();
    now.cells = pipeline_.stats().size();
    now.cell_bytes = pipeline_.stats().bytes();
    now.is_invalid_too_often = watch_.is_too_often();
    return now;
  }

  // --- the worker: a thread that does round() again and again ------------------------------------

  void start_thread() {
    rounds_.start(settings_.poll_ns, [this] { round_in_thread(); });
  }

  void stop_thread() { rounds_.stop(); }

  // Takes what has come back; asks for more when that is due.
  void round(std::int64_t now_ns) {
    if (is_tracing() && now_ns >= next_flush_ns_) {
      // Whether it works at all is to be known within a second of the first launches.
      const bool is_open = sampling_.is_probing();
      next_flush_ns_ = now_ns + (is_open ? settings_.poll_ns : settings_.flush_ns);
      flush(now_ns);
    } else {
      drain(now_ns);
    }
    pool_.prepare(kSpareBuffers);
  }

  // Asks CUPTI for all records that are whole, and drains them. Does not wait for the GPU.
  // now_ns: for a world whose time is ahead of the clock.
  void flush(std::int64_t now_ns = 0) {
    if (is_forked_.load()) return;
    const std::int64_t asked_ns = monotonic_ns();
    tracing_.api().flush_all(0);
    const bool is_drained = drain_in_turn(now_ns);
    count_dropped();
    if (!is_drained) return;
    const bool is_all_back = pool_.out() == 0;  // a launch asks for its buffer as it is made
    const std::lock_guard<std::mutex> lock(mutex_);
    pipeline_.flushed();
    watch_.record(pipeline_.counts().events, pipeline_.counts().invalid);
    proof_.record(pipeline_.counts(), std::max(now_ns, asked_ns));
    sampling_.set_probing(proof_.state() == ProofState::kOpen);
    const std::uint64_t buffers = own_buffers_.load();
    const bool has_come = buffers != std::exchange(buffers_seen_, buffers);
    // Where marks are heard of without records, that nothing came back may be another client's doing.
    if (is_all_back && (has_come || way() == Way::kMarks)) pipeline_.complete_until(asked_ns);
    record_silence(has_come);
  }

 private:
  static constexpr std::size_t kSpareBuffers = 16;
  static constexpr std::size_t kBatch = 256;

  // What is read of a buffer, in portions, so that no lock is held while CUPTI is called.
  struct Batch {
    Collector* collector;
    std::int64_t now_ns;
    std::size_t marks = 0;
    std::size_t events = 0;
    MarkEvent mark[kBatch];
    GpuEvent event[kBatch];

    void observe(const MarkEvent& one) {
      mark[marks++] = one;
      if (marks == kBatch) give();
    }
    void observe(const GpuEvent& one) {
      event[events++] = one;
      if (events == kBatch) give();
    }
    void give() {
      const std::lock_guard<std::mutex> lock(collector->mutex_);
      collector->pipeline_.process(mark, marks, event, events, now_ns);
      marks = events = 0;
    }
  };

  Collector(Library library, const CollectorSettings& settings)
      : settings_(settings),
        first_way_(first_way(library, settings)),
        way_(first_way_),
        tracing_(std::move(library), kinds(settings),
                 {on_request, on_completed, on_call, wall_clock, this}),
        pool_(settings.buffer_bytes, settings.max_buffers),
        pipeline_(first_way_, current_.directory(), marks_, launches_) {
    sampling_.set(settings.rate);
  }

  static Way first_way(const Library& library, const CollectorSettings& settings) {
    if (settings.prefers_launches || library.get_driver_version == nullptr) return Way::kLaunches;
    return library.api.enable_driver_api != nullptr ? Way::kMarks : Way::kCallbacks;
  }

  // By the way in use, or the next one where it is refused.
  std::string set_up() {
    for (std::string first;;) {
      if (way() == Way::kCallbacks) marks_.expect_notes();
      const std::string reason = tracing_.set_up(way());
      if (reason.empty()) return "";
      const bool is_way_refused = tracing_.is_way_refused();
      tear_down();
      if (first.empty()) first = reason;
      if (!is_way_refused || !take_next_way()) return first;
    }
  }

  bool has_marks() const noexcept { return way() != Way::kLaunches; }

  // A run has begun that is not in a sampled step: outside of steps, or of what is sampled already.
  bool may_sample(std::uint32_t section) noexcept {
    const bool is_by_step = sampling_.rate().steps != 0;
    if (is_by_step && current_.ambient() != kNoRun) return false;
    return sampling_.wants_run(section);
  }

  // span: of the run that begins with it; kNoSpan: none does. Two threads at once: the second one
  // leaves it at that, and the next boundary decides anew.
  void switch_records(bool is_on, std::uint64_t span) noexcept {
    const Turn turn(is_switching_);
    if (!turn.is_ours || is_recording() == is_on || is_forked_.load()) return;
    if (tracing_.switch_records(is_on) != kSuccess) return;
    is_recording_.store(is_on, std::memory_order_relaxed);
    switches_.push({span, monotonic_ns(), is_on});
  }

  // Under mutex_.
  void learn_switches() {
    switches_.read([this](const Switch& one) { pipeline_.learn(one); });
  }

  static std::vector<Kind> kinds(const CollectorSettings& settings) {
    std::vector<Kind> wanted{kConcurrentKernel};
    if (settings.times_memory) wanted.insert(wanted.end(), {kMemcpy, kMemset});
    if (settings.times_whole_graphs) wanted.push_back(kGraphTrace);
    return wanted;
  }

  // --- on the training's threads -----------------------------------------------------------------

  static void on_request(std::uint8_t** buffer, std::size_t* size,
                         std::size_t* max_records) noexcept {
    *max_records = 0;
    Collector* const it = active_.load(std::memory_order_acquire);
    *buffer = it == nullptr || is_forked_.load(std::memory_order_relaxed) ? nullptr
                                                                         : it->pool_.acquire();
    if (*buffer == nullptr && it != nullptr) {
      it->declined_buffers_.fetch_add(1, std::memory_order_relaxed);
      if (it->tracing_.version() < kDeclineVersion) *buffer = it->pool_.scratch();
    }
    *size = *buffer == nullptr ? 0 : it->pool_.bytes();
  }

  static void on_completed(Context, std::uint32_t, std::uint8_t* buffer, std::size_t,
                           std::size_t valid_bytes) noexcept {
    Collector* const it = active_.load(std::memory_order_acquire);
    if (it == nullptr || buffer == nullptr) return;
    if (it->pool_.is_scratch(buffer)) {
      it->wasted_buffers_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    std::atomic<std::uint64_t>& count =
        it->pool_.complete(buffer, valid_bytes) ? it->own_buffers_ : it->foreign_buffers_;
    count.fetch_add(1, std::memory_order_relaxed);
  }

  static void on_call(void* user, std::uint32_t domain, std::uint32_t call,
                      const void* data) noexcept {
    const auto* const callback = static_cast<const CallbackData*>(data);
    if (domain != kDriverDomain || callback->site != kEnter) return;
    auto* const it = static_cast<Collector*>(user);
    if (call == kGetVersionCall) {
      if (mark_of_this_call != 0) it->marks_.note(mark_of_this_call, callback->correlation);
      return;
    }
    const Run run = it->current_.here();
    it->launches_.record(callback->correlation, run);
    if (run != kNoRun) it->current_.directory().count_launch(run, is_graph_launch(call));
  }

  static std::uint64_t wall_clock() noexcept { return static_cast<std::uint64_t>(wall_ns()); }

  void mark(Run run) noexcept { tracing_.mark(marks_.issue(run)); }

  // --- the worker --------------------------------------------------------------------------------

  void round_in_thread() {
    try {
      round(monotonic_ns());
    } catch (const std::exception&) {  // memory has run out; what was read is lost
      const std::lock_guard<std::mutex> flawed(mutex_);
      pipeline_.count_dropped(1, monotonic_ns());
    }
  }

  void tear_down() {
    tracing_.tear_down();
    drain();
  }

  // Waits for a thread that is at it, but not forever: it may be one that was stopped.
  bool drain_in_turn(std::int64_t now_ns) {
    for (int tries = 0; tries < 200; ++tries) {
      if (drain(now_ns)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  // False if another thread is at it. now_ns: as in flush().
  bool drain(std::int64_t now_ns = 0) {
    const Turn turn(is_draining_);
    if (!turn.is_ours) return false;
    completed_.clear();
    pool_.drain_completed(completed_);
    now_ns = std::max(now_ns, monotonic_ns());  // what has come was launched before
    begin_poll();
    for (const CompletedBuffer& buffer : completed_) {
      read(buffer, now_ns);
      pool_.give_back(buffer);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    pipeline_.tend(now_ns);
    return true;
  }

  void begin_poll() {
    const std::lock_guard<std::mutex> lock(mutex_);
    pipeline_.begin_poll();
  }

  void read(const CompletedBuffer& buffer, std::int64_t now_ns) {
    batch_.collector = this;
    batch_.now_ns = now_ns;
    const Result end =
        walk(tracing_.api().get_next_record, buffer.bytes, buffer.valid_bytes, batch_);
    batch_.give();
    if (end == kMaxLimitReached) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    ++garbage_buffers_;
    pipeline_.count_dropped(1, now_ns);
  }

  // By CUPTI, up to now: whatever has begun before may be short of them.
  void count_dropped() {
    std::size_t dropped = 0;
    if (tracing_.api().get_dropped(nullptr, 0, &dropped) != kSuccess) dropped = 0;
    dropped += wasted_buffers_.exchange(0);  // as many records at least
    const std::int64_t now_ns = monotonic_ns();
    const std::lock_guard<std::mutex> lock(mutex_);
    pipeline_.count_dropped(dropped, now_ns);
  }

  // Whether another client gets what is ours: work was launched, and nothing comes back.
  void record_silence(bool has_come) {
    const std::uint64_t launched = has_marks() ? marks_.issued() : launches_.count();
    const bool has_launched = launched != std::exchange(launched_seen_, launched);
    if (has_come) silent_flushes_ = 0;
    if (!has_come && has_launched) ++silent_flushes_;
  }

  inline static std::atomic<Collector*> active_{nullptr};
  inline static std::atomic<bool> is_forked_{false};

  CollectorSettings settings_;
  const Way first_way_;
  std::atomic<Way> way_;
  Tracing tracing_;
  BufferPool pool_;
  CurrentRun current_;
  Marks marks_;
  Launches launches_;
  Sampling sampling_;
  SwitchLog switches_;
  std::atomic<GpuTimer*> beneath_{nullptr};
  std::atomic<bool> is_tracing_{false};
  std::atomic<bool> is_recording_{false};
  std::atomic<bool> is_switching_{false};
  std::uint64_t sampled_run_ = kNoSpan;  // records are on until it ends; the training thread's
  std::atomic<std::uint64_t> own_buffers_{0};
  std::atomic<std::uint64_t> foreign_buffers_{0};
  std::atomic<std::uint64_t> declined_buffers_{0};
  std::atomic<std::uint64_t> wasted_buffers_{0};  // that we gave to be written over
  std::atomic<std::uint64_t> boundaries_elsewhere_{0};

  std::atomic<bool> is_draining_{false};  // see Turn; guards the next two
  std::vector<CompletedBuffer> completed_;
  Batch batch_{};

  std::mutex mutex_;  // what follows; never while CUPTI is called
  Pipeline pipeline_;
  InvalidWatch watch_;
  Proof proof_;
  std::uint64_t garbage_buffers_ = 0;
  std::uint64_t silent_flushes_ = 0;
  std::uint64_t buffers_seen_ = 0;
  std::uint64_t launched_seen_ = 0;

  std::int64_t next_flush_ns_ = 0;
  Rounds rounds_;
};

}  // namespace otel_straggler::cupti
