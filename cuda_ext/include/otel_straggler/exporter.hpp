// The thread that drains, encodes, and sends spans and heartbeats. It knows nothing of Python,
// so it goes on while another thread holds the GIL.
//
// The same rules as otel_straggler/client/python_export.py; one test class runs over both.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "otel_straggler/clocks.hpp"
#include "otel_straggler/encode.hpp"
#include "otel_straggler/gpu_stage.hpp"
#include "otel_straggler/handoff.hpp"
#include "otel_straggler/heartbeat.hpp"
#include "otel_straggler/http_connection.hpp"
#include "otel_straggler/recorder.hpp"
#include "otel_straggler/span_sender.hpp"

namespace otel_straggler {

// The encoder and its users: the exporter's thread, and threads that register a new name.
struct SharedEncoder {
  template <typename... Args>
  explicit SharedEncoder(Args&&... args) : encoder(std::forward<Args>(args)...) {}

  std::mutex mutex;
  encoding::SpanEncoder encoder;
};

struct ExporterSettings {
  Target traces;
  Target metrics;
  bool sends_spans = true;
  bool sends_metrics = true;
  bool is_one_origin = true;  // an answer to metrics is about the server of spans too
  bool is_trusted = true;     // the server scores, by the user's word
  std::int64_t traces_timeout_ns = 10 * kSecondNs;
  std::int64_t metrics_timeout_ns = 10 * kSecondNs;
  std::int64_t flush_ns = kSecondNs;
  std::int64_t heartbeat_ns = 5 * kSecondNs;
  std::uint64_t queue_bytes = 64 * 1'024 * 1'024;
  std::uint64_t sample_steps = 100;
  std::uint32_t main_tid = 0;
};

// What it has come to, for those who ask.
struct ExporterState {
  bool is_scorer = false;
  std::uint64_t recorded = 0;  // runs that it was given
  std::uint64_t queued_requests = 0;
  std::uint64_t queued_bytes = 0;
  CountsByName dropped;
};

class Exporter : public std::enable_shared_from_this<Exporter> {
 public:
  // recorder, handoff and gpu_timers: live as long as the process.
  Exporter(ExporterSettings settings, HeartbeatVocabulary words,
           std::shared_ptr<SharedEncoder> encoder, Recorder& recorder, Handoff& handoff,
           GpuTimers& gpu_timers)
      : settings_(std::move(settings)),
        encoder_(std::move(encoder)),
        recorder_(&recorder),
        handoff_(&handoff),
        heartbeats_(std::move(words)),
        sender_(settings_.queue_bytes),
        traces_(settings_.traces, interrupt_),
        metrics_(settings_.metrics, interrupt_),
        started_ns_(wall_ns()),
        gpu_(gpu_timers) {
    state_.is_scorer = settings_.is_trusted;
  }

  // Begins the thread, which keeps the exporter alive until it ends. Signals go to other threads.
  void start() {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([self = shared_from_this()] { self->run(); }).detach();
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  // Asks for everything to be sent before `deadline_ns`; with an outcome, also to say that the
  // rank has ended, and to count what could not be sent. The answer is a number for wait().
  std::uint64_t begin_flush(std::int64_t deadline_ns, std::string outcome) {
    const std::lock_guard<std::mutex> lock(mutex_);
    flushes_.push_back({deadline_ns, std::move(outcome)});
    changed_.notify_all();
    return ++flushes_asked_;
  }

  // Whether that flush was done before `until_ns`.
  bool wait(std::uint64_t flush, std::int64_t until_ns) {
    std::unique_lock<std::mutex> lock(mutex_);
    return wait_until(lock, until_ns, [&] { return flushes_done_ >= flush || has_ended_; }) &&
           flushes_done_ >= flush;
  }

  // Lets the thread end after what it is doing; from `until_ns` on it is cut off.
  bool stop(std::int64_t until_ns) {
    std::unique_lock<std::mutex> lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
    if (wait_until(lock, until_ns, [&] { return has_ended_; })) return true;
    interrupt_.pull();
    return false;
  }

  // Once the thread has ended, from the caller's: replaces the outcome that was sent, and adds an
  // attribute to the rank's description.
  void correct_outcome(const std::string& outcome, std::string_view key, std::uint64_t number,
                       std::int64_t until_ns) {
    const proto::Bytes more = heartbeats::int_attribute(key, number);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!has_ended_) return;
      info_.append(more.begin(), more.end());
    }
    send_heartbeat(outcome, until_ns);
  }

  void set_resource(std::uint32_t epoch, std::string resource) {
    const std::lock_guard<std::mutex> lock(mutex_);
    resources_[epoch] = std::move(resource);
    while (resources_.size() > kMaxResources) resources_.erase(resources_.begin());
  }

  // Args: attributes of the rank's description, as fields of a data point; what others have lost.
  void describe(std::string info, CountsByName other_losses) {
    const std::lock_guard<std::mutex> lock(mutex_);
    info_ = std::move(info);
    other_losses_ = std::move(other_losses);
  }

  ExporterState state() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return state_;
  }

  // What a person should know of, since the last time.
  std::vector<Note> drain_notes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(notes_, {});
  }

 private:
  struct Flush {
    std::int64_t deadline_ns;
    std::string outcome;
  };

  static constexpr std::int64_t kLookNs = kSecondNs / 10;  // at the ring, and at the GPU's timer
  static constexpr std::int64_t kShortPollNs = kSecondNs / 100;  // while a caller waits
  static constexpr std::size_t kAtOnce = 8'192;
  static constexpr std::size_t kMaxResources = 64;
  static constexpr std::size_t kMaxNotes = 64;
  static constexpr std::size_t kMaxFolded = 100;

  // Until a moment of CLOCK_MONOTONIC, which is what steady_clock is.
  template <typename Done>
  bool wait_until(std::unique_lock<std::mutex>& lock, std::int64_t until_ns, Done done) {
    const std::chrono::nanoseconds left(std::max<std::int64_t>(until_ns - monotonic_ns(), 0));
    return changed_.wait_for(lock, left, done);
  }

  // --- the thread ------------------------------------------------------------------------------

  void run() {
    ::pthread_setname_np(::pthread_self(), "otel-straggler");
    std::int64_t next_ns = monotonic_ns();
    next_heartbeat_ns_ = next_ns;
    while (!is_stopping()) {
      const std::int64_t now_ns = monotonic_ns();
      if (now_ns >= next_ns || is_filling()) {
        guarded([&] { next_ns = tick(now_ns); }, next_ns);
      } else if (gpu_.is_needed()) {
        guarded([&] { collect(); }, next_ns);
      }
      Flush flush;
      while (!is_stopping() && next_flush(flush)) {
        guarded([&] { do_flush(flush); }, next_ns);
        end_flush();
      }
      sleep(next_ns);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    has_ended_ = true;
    changed_.notify_all();
  }

  // Memory may run out; the thread outlives that.
  template <typename Work>
  void guarded(Work work, std::int64_t& next_ns) {
    try {
      work();
    } catch (const std::exception&) {
      ++encode_errors_;
      next_ns = monotonic_ns() + kSecondNs;
    }
  }

  bool is_filling() const {
    return recorder_->ring().size() + timed_.size() > recorder_->limit() / 2;
  }

  bool is_stopping() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_stopping_;
  }

  void sleep(std::int64_t next_ns) {
    std::unique_lock<std::mutex> lock(mutex_);
    wait_until(lock, std::min(next_ns, monotonic_ns() + kLookNs),
               [&] { return is_stopping_ || !flushes_.empty(); });
  }

  bool next_flush(Flush& flush) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (flushes_.empty()) return false;
    flush = std::move(flushes_.front());
    flushes_.erase(flushes_.begin());
    return true;
  }

  void end_flush() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++flushes_done_;
    changed_.notify_all();
  }

  // --- what it does ----------------------------------------------------------------------------

  // What is due at `now_ns`; the time of the next tick.
  std::int64_t tick(std::int64_t now_ns) {
    recorder_->record_alive(now_ns);
    send_heartbeat_if_due(now_ns);
    collect();
    encode(timed_);
    sender_.send(now_ns + settings_.flush_ns, settings_.traces_timeout_ns, post_);
    publish();
    const std::int64_t then_ns = monotonic_ns();
    return then_ns >= now_ns + settings_.flush_ns ? then_ns : now_ns + settings_.flush_ns;
  }

  void do_flush(const Flush& flush) {
    collect();
    wait_for_gpu(flush.deadline_ns);
    encode(timed_);
    sender_.send_before(flush.deadline_ns, settings_.traces_timeout_ns, post_);
    if (!flush.outcome.empty()) sender_.give_up();
    publish();
    if (flush.outcome.empty() || has_sent_outcome_) return;
    has_sent_outcome_ = true;
    send_heartbeat(flush.outcome, std::max(flush.deadline_ns, monotonic_ns() + kSecondNs / 20));
  }

  // Gives the runs that wait for the timer of the GPU a last chance, of half the time that is left;
  // then they go without numbers.
  void wait_for_gpu(std::int64_t deadline_ns) {
    const std::int64_t began_ns = monotonic_ns();
    const std::int64_t until_ns =
        began_ns + std::clamp<std::int64_t>((deadline_ns - began_ns) / 2, 0, GpuStage::kPatienceNs);
    while (gpu_.is_waiting() && !gpu_.is_complete() && !is_stopping()) {
      const std::int64_t now_ns = monotonic_ns();
      if (now_ns >= until_ns) break;
      send_heartbeat_if_due(now_ns);
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wait_until(lock, std::min(until_ns, now_ns + kShortPollNs), [&] { return is_stopping_; });
      }
      collect();
    }
    gpu_.drain_all(gpu_.is_complete(), timed_);
  }

  // Takes about one ring full: who records without end must not keep it from sending. Runs whose
  // numbers of the GPU are there, or are not wanted, are in timed_ then.
  void collect() {
    bool is_empty = false;
    for (std::uint64_t round = 0; !is_empty && round <= kRingCapacity / kAtOnce; ++round) {
      records_.clear();
      is_empty = handoff_->drain(Reader::kExporter, *recorder_, kAtOnce, records_);
      const std::size_t taken = records_.size();
      if (taken == 0) break;
      if (settings_.sends_spans) {
        if (gpu_.is_needed()) {
          gpu_.put(records_.data(), records_.size());
        } else {
          encode(records_);
        }
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      state_.recorded += taken;
    }
    if (gpu_.is_needed()) gpu_.drain_ready(monotonic_ns(), timed_);
  }

  // Leaves `records` empty.
  void encode(std::vector<Record>& records) {
    if (records.empty()) return;
    encoding_.clear();
    encoding_.swap(records);  // they are lost if memory runs out, and are not tried again
    const std::uint64_t one_in = is_scorer() ? 1 : settings_.sample_steps;
    requests_.clear();
    {
      const std::lock_guard<std::mutex> lock(encoder_->mutex);
      encoder_->encoder.recycle(sender_.sent());
      encoder_->encoder.encode(reinterpret_cast<const std::uint8_t*>(encoding_.data()),
                               encoding_.size(), wall_ns() - monotonic_ns(), one_in, requests_);
    }
    for (encoding::Request& request : requests_) sender_.put(std::move(request));
  }

  bool is_scorer() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return state_.is_scorer;
  }

  void mark_scorer() {
    const std::lock_guard<std::mutex> lock(mutex_);
    state_.is_scorer = true;
  }

  void publish() {
    std::vector<Note> notes = sender_.drain_notes();
    CountsByName dropped = losses();
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Note& note : notes) {
      if (notes_.size() < kMaxNotes) notes_.push_back(std::move(note));
    }
    state_.dropped = std::move(dropped);
    state_.queued_requests = sender_.queued_requests();
    state_.queued_bytes = sender_.queued_bytes();
  }

  // --- heartbeats ------------------------------------------------------------------------------

  void send_heartbeat_if_due(std::int64_t now_ns) {
    if (now_ns < next_heartbeat_ns_) return;
    next_heartbeat_ns_ = now_ns + settings_.heartbeat_ns;
    if (has_sent_outcome_) return;
    const double wait_s = send_heartbeat("", now_ns + settings_.heartbeat_ns);
    const std::int64_t until_ns = now_ns + static_cast<std::int64_t>(wait_s * 1e9);
    next_heartbeat_ns_ = std::max(next_heartbeat_ns_, until_ns);
  }

  // For how many seconds the server wants nothing more: its limits are reached.
  double send_heartbeat(const std::string& outcome, std::int64_t until_ns) {
    if (!settings_.sends_metrics) return 0.0;
    const std::int64_t deadline_ns =
        std::min(until_ns, monotonic_ns() + settings_.metrics_timeout_ns);
    const Surroundings now = recorder_->header().surroundings.load();
    const auto [resource, info] = description(now.epoch);
    if (resource.empty()) return 0.0;  // a heartbeat without a sender
    const proto::Bytes body = heartbeats_.request(heartbeat(now, outcome), resource, info);
    const Answer answer = metrics_.post(proto::view_of(body), deadline_ns);
    if (answer.is_scorer && settings_.is_one_origin) mark_scorer();
    if (answer.is_success()) sender_.mark_reachable();
    return answer.status == kTooManyRequests ? answer.retry_after_s.value_or(0.0) : 0.0;
  }

  Heartbeat heartbeat(const Surroundings& now, const std::string& outcome) {
    Heartbeat beat;
    beat.now_ns = wall_ns();
    beat.started_ns = started_ns_;
    const std::int64_t now_ns = monotonic_ns();
    beat.progress_ns = recorder_->progress_ns() + beat.now_ns - now_ns;
    if (now.last_step != kNoStep) beat.step = now.last_step;
    beat.outcome = outcome;
    beat.dropped = losses();
    const auto open = recorder_->open_section(settings_.main_tid);
    const std::lock_guard<std::mutex> lock(encoder_->mutex);
    const encoding::Names& names = encoder_->encoder.names();
    if (open && names.has_section(open->section)) {
      beat.open_section = {names.section(open->section).name,
                           std::max<std::int64_t>(now_ns - open->start_ns, 0)};
    } else if (now.step != kNoStep && names.has_section(kStepSection)) {  // between two sections
      beat.open_section = {names.section(kStepSection).name,
                           std::max<std::int64_t>(beat.now_ns - beat.progress_ns, 0)};
    }
    if (now.is_on != 0 && names.has_phase(now.phase)) beat.phase = names.phase(now.phase);
    beat.folded = max_folded();
    return beat;
  }

  // The sections of which most was folded. The encoder is the caller's.
  CountsByName max_folded() const {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> runs;
    const std::vector<std::uint64_t>& by_name = encoder_->encoder.folded_by_name();
    for (std::uint32_t name = 0; name < by_name.size(); ++name) {
      if (by_name[name] > 0) runs.emplace_back(by_name[name], name);
    }
    const std::size_t shown = std::min(runs.size(), kMaxFolded);
    std::partial_sort(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(shown), runs.end(),
                      [](const auto& a, const auto& b) { return a.first > b.first; });
    CountsByName hottest;
    for (std::size_t at = 0; at < shown; ++at) {
      hottest[encoder_->encoder.names().name_of(runs[at].second)] = runs[at].first;
    }
    return hottest;
  }

  std::pair<std::string, std::string> description(std::uint32_t epoch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = resources_.find(epoch);
    return {found == resources_.end() ? std::string() : found->second, info_};
  }

  // By reason, and only of what there is.
  CountsByName losses() {
    std::uint64_t bad_records = encode_errors_;
    {
      const std::lock_guard<std::mutex> lock(encoder_->mutex);
      bad_records += encoder_->encoder.counts().bad_records;
    }
    CountsByName all;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      all = other_losses_;
    }
    const GpuLosses of_gpu = gpu_.losses();
    const std::pair<HeartbeatWord, std::uint64_t> own[] = {
        {kRingFullReason, recorder_->ring().dropped()},
        {kInboxFullReason, handoff_->lost(Reader::kExporter)},
        {kQueueFullReason, sender_.losses().queue_full},
        {kRejectedReason, sender_.losses().rejected},
        {kProcessEndedReason, sender_.losses().process_ended},
        {kEncodeErrorReason, bad_records},
        {kGpuMissingReason, gpu_.missing()},
        {kGpuDroppedReason, of_gpu.dropped},
        {kGpuInvalidReason, of_gpu.invalid},
        {kGpuLostReason, of_gpu.lost},
        {kGpuLateReason, of_gpu.late},
    };
    for (const auto& [reason, count] : own) {
      if (count > 0) all[heartbeats_.word(reason)] += count;
    }
    return all;
  }

  const ExporterSettings settings_;
  const std::shared_ptr<SharedEncoder> encoder_;
  Recorder* const recorder_;
  Handoff* const handoff_;

  // Of the thread alone.
  Interrupt interrupt_;
  HeartbeatWriter heartbeats_;
  SpanSender sender_;
  HttpConnection traces_;
  HttpConnection metrics_;
  const std::int64_t started_ns_;
  const SpanSender::Post post_ = [this](std::string_view body, std::int64_t deadline_ns) {
    Answer answer = traces_.post(body, deadline_ns);
    if (answer.is_scorer) mark_scorer();
    return answer;
  };
  GpuStage gpu_;
  std::vector<Record> records_;
  std::vector<Record> timed_;  // to be encoded
  std::vector<Record> encoding_;
  std::vector<encoding::Request> requests_;
  std::int64_t next_heartbeat_ns_ = 0;
  std::uint64_t encode_errors_ = 0;
  bool has_sent_outcome_ = false;

  // Of all, under the mutex.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Flush> flushes_;
  std::uint64_t flushes_asked_ = 0;
  std::uint64_t flushes_done_ = 0;
  bool is_stopping_ = false;
  bool has_ended_ = false;
  std::map<std::uint32_t, std::string> resources_;
  std::string info_;
  CountsByName other_losses_;
  ExporterState state_;
  std::vector<Note> notes_;
};

}  // namespace otel_straggler
