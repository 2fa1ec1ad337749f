// Recording: what happens when a section begins and ends, and when a step does.
//
// The same rules as otel_straggler/client/python_recorder.py; one test class runs over both.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "otel_straggler/block.hpp"
#include "otel_straggler/record.hpp"
#include "otel_straggler/ring.hpp"
#include "otel_straggler/threads.hpp"

namespace otel_straggler {

struct Work {
  std::int64_t tokens = kNotReported;
  std::int64_t microbatch = kNotReported;
};

class Recorder {
 public:
  // block: open.
  explicit Recorder(const Block& block)
      : header_(&block.header()), ring_(block.ring()), threads_(block.threads()) {}

  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  Ring& ring() { return ring_; }
  const ThreadTable& threads() const { return threads_; }
  const Header& header() const { return *header_; }
  // For who reads the block of a dead process.
  void record_alive(std::int64_t now_ns) {
    header_->alive_ns.store(now_ns, std::memory_order_relaxed);
  }

  // From now on records are kept until there are so many.
  void set_limit(std::uint64_t limit) {
    limit_.store(limit < ring_.capacity() ? limit : ring_.capacity(), std::memory_order_relaxed);
  }
  std::uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }

  void enable(std::uint32_t epoch, const char (&session_id)[16], std::int64_t now_ns) {
    {
      const std::lock_guard<std::mutex> lock(taking_);
      ring_.clear();
    }
    open_step_ = false;
    Surroundings now{};
    now.step = now.last_step = kNoStep;
    now.epoch = epoch;
    now.step_began_ns = now_ns;
    now.is_on = 1;
    std::memcpy(now.session_id, session_id, sizeof(now.session_id));
    header_->surroundings.store(now);
    is_on_.store(true, std::memory_order_release);
  }

  // Call end_step() before, if the open step is to be kept.
  void disable() {
    is_on_.store(false, std::memory_order_release);
    Surroundings now = header_->surroundings.load();
    now.is_on = 0;
    header_->surroundings.store(now);
  }

  // In a child that has the parent's memory before its eyes.
  void abandon() { is_on_.store(false, std::memory_order_release); }

  std::unique_ptr<ThreadStack> enter_thread(std::uint32_t tid) {
    const std::uint32_t number = last_thread_.fetch_add(1, std::memory_order_relaxed) + 1;
    ThreadSlot* slot = threads_.acquire(number, tid);
    if (slot == nullptr) header_->threads_left_out.fetch_add(1, std::memory_order_relaxed);
    return std::make_unique<ThreadStack>(slot, number);
  }

  void leave_thread(ThreadStack& thread) {
    const std::int64_t end_ns = thread.slot().last_end_ns.load(std::memory_order_relaxed);
    if (end_ns > header_->ended_threads_end_ns.load(std::memory_order_relaxed)) {
      header_->ended_threads_end_ns.store(end_ns, std::memory_order_relaxed);
    }
    if (thread.is_published()) ThreadTable::release(thread.slot());
  }

  std::uint64_t next_span(ThreadStack& thread) { return thread.next_span(spans_); }

  // Begins a run on the stack of its thread.
  void begin(ThreadStack& thread, std::uint32_t section, std::int64_t now_ns, const Work& work,
             std::uint64_t span) {
    if (thread.depth() < kPublishedFrames) {
      const Around around = this->around();
      thread.push_published({span, word(now_ns), around.step, around.step_span, word(work.tokens),
                             word(work.microbatch), section, around.phase_epoch});
    } else {
      header_->frames_left_out.fetch_add(1, std::memory_order_relaxed);
      thread.push(frame(section, now_ns, work, span));
    }
  }

  // end() and keep() in one, straight from the stack into the ring. False, and nothing has
  // happened, if that is not how it is: the run is not the innermost, or the ring is full.
  // `notify` is called with its span once it has left the stack, and before its record is visible.
  template <typename Notify>
  bool end_at_once(ThreadStack& thread, std::uint32_t section, std::int64_t end_ns, Notify notify) {
    const std::size_t depth = thread.depth();
    if (depth == 0 || depth > kPublishedFrames) return false;
    const Cell<Frame>& frame = thread.published(depth - 1);
    if (low(frame.word(kSectionWord)) != section || ring_.size() >= limit()) return false;
    const std::uint64_t step_span = frame.word(kStepSpanWord);
    std::uint64_t parent = step_span;
    std::uint32_t parent_section = kNoSection;
    if (depth > 1 && thread.published(depth - 2).word(kStepSpanWord) == step_span) {
      parent = thread.published(depth - 2).word(kSpanWord);
      parent_section = low(thread.published(depth - 2).word(kSectionWord));
    }
    return ring_.add_with([&](Record& record) {
      const std::uint64_t phase_epoch = frame.word(kPhaseEpochWord);
      record.span = frame.word(kSpanWord);
      record.parent = parent;
      record.step_span = step_span;
      record.step = static_cast<std::int64_t>(frame.word(kStepWord));
      record.start_ns = static_cast<std::int64_t>(frame.word(kStartWord));
      record.end_ns = end_ns;
      record.tokens = static_cast<std::int64_t>(frame.word(kTokensWord));
      record.microbatch = static_cast<std::int64_t>(frame.word(kMicrobatchWord));
      record.section = section;
      record.parent_section = parent_section;
      record.phase = low(phase_epoch);
      record.epoch = static_cast<std::uint32_t>(phase_epoch >> 32);
      record.thread = thread.number();
      record.flags = 0;
      record.gpu = waited_slot(thread.waited_in(depth - 1), record.start_ns, end_ns);
      thread.drop_published();
      notify(record.span);
    });
  }

  bool end_at_once(ThreadStack& thread, std::uint32_t section, std::int64_t end_ns) {
    return end_at_once(thread, section, end_ns, [](std::uint64_t) {});
  }

  // Ends the newest run of this section in this thread; none if it began while nothing was
  // recorded, or in another thread. It may lie below others: coroutines interleave.
  bool end(ThreadStack& thread, std::uint32_t section, std::int64_t end_ns, std::uint32_t flags,
           Record& record) {
    for (std::size_t at = thread.depth(); at-- > 0;) {
      const Frame frame = thread.at(at);
      if (frame.section != section) continue;
      const std::int64_t waited_ns = thread.waited_in(at);
      thread.remove(at);
      record = ended(frame, thread.number(), end_ns, flags);
      record.gpu = waited_slot(waited_ns, record.start_ns, end_ns);
      if (at > 0) put_inside(record, thread.at(at - 1));
      return true;
    }
    return false;
  }

  // Begins a run that is on no stack: a coroutine shares its thread with others.
  Record begin_detached(ThreadStack& thread, std::uint32_t section, std::int64_t now_ns,
                        std::uint64_t span) {
    const Frame begun = frame(section, now_ns, Work{}, span);
    Record record = ended(begun, thread.number(), now_ns, kHostOnly);
    if (thread.depth() > 0) put_inside(record, thread.at(thread.depth() - 1));
    return record;
  }

  // False if there are as many as may be kept.
  bool keep(const Record& record) { return ring_.size() < limit() && ring_.add(record); }

  // The open step, ended; none if there is none.
  std::optional<Record> end_step(ThreadStack& thread, std::int64_t now_ns, std::uint32_t flags) {
    if (!open_step_ || !is_on()) return std::nullopt;
    open_step_ = false;
    Surroundings now = header_->surroundings.load();
    Frame step{};
    step.span = now.step_span;
    step.start_ns = now.step_began_ns;
    step.step = now.step;
    step.step_span = now.step_span;
    step.tokens = step.microbatch = kNotReported;
    step.section = kStepSection;
    step.phase = step_phase_;
    step.epoch = now.epoch;
    now.step = kNoStep;
    now.step_span = kNoSpan;
    header_->surroundings.store(now);
    Record record = ended(step, thread.number(), now_ns, flags | kStepSpan);
    record.parent = kNoSpan;
    if (now.stepping_thread == thread.number()) {  // another thread's waiting is not known here
      const std::int64_t waited_ns = thread.waited_ns() - step_waited_before_ns_;
      record.gpu = waited_slot(waited_ns, record.start_ns, now_ns);
    }
    return record;
  }

  // The one before has ended.
  void begin_step(ThreadStack& thread, std::int64_t step, std::uint64_t span, std::uint32_t epoch,
                  const char (&session_id)[16], std::int64_t now_ns) {
    Surroundings now = header_->surroundings.load();
    now.step = now.last_step = step;
    now.step_span = span;
    now.epoch = epoch;
    now.step_began_ns = now_ns;
    now.stepping_thread = thread.number();
    std::memcpy(now.session_id, session_id, sizeof(now.session_id));
    header_->surroundings.store(now);
    open_step_ = true;
    step_phase_ = now.phase;
    step_waited_before_ns_ = thread.waited_ns();
  }

  void set_phase(std::uint32_t phase) {
    Surroundings now = header_->surroundings.load();
    now.phase = phase;
    header_->surroundings.store(now);
  }

  std::size_t drain(Record* records, std::size_t max_records) {
    const std::lock_guard<std::mutex> lock(taking_);
    return ring_.drain(records, max_records);
  }

  // The innermost open run of the thread that counts steps; without one, of the main thread, or
  // else the one that has been open for longest.
  std::optional<Frame> open_section(std::uint32_t main_tid) const {
    const std::uint32_t stepping = header_->surroundings.load().stepping_thread;
    if (stepping != kNoThread) {
      const ThreadSlot* slot = threads_.find(stepping);
      return slot == nullptr ? std::nullopt : innermost(*slot);
    }
    std::optional<Frame> oldest;
    for (std::size_t at = 0; at < threads_.used(); ++at) {
      if (threads_[at].thread.load(std::memory_order_acquire) == kNoThread) continue;
      const std::optional<Frame> found = innermost(threads_[at]);
      if (!found) continue;
      if (threads_[at].tid.load(std::memory_order_acquire) == main_tid) return found;
      if (!oldest || found->start_ns < oldest->start_ns) oldest = found;
    }
    return oldest;
  }

  // When the rank last got on: a step begun, or a run ended in the thread that counts steps.
  std::int64_t progress_ns() const {
    const Surroundings now = header_->surroundings.load();
    std::int64_t newest = now.step_began_ns;
    if (now.stepping_thread != kNoThread) {
      const ThreadSlot* slot = threads_.find(now.stepping_thread);
      return slot == nullptr ? newest : later(newest, *slot);
    }
    for (std::size_t at = 0; at < threads_.used(); ++at) newest = later(newest, threads_[at]);
    const std::int64_t ended = header_->ended_threads_end_ns.load(std::memory_order_relaxed);
    return ended > newest ? ended : newest;
  }

 private:
  // Of the words of Surroundings those that a run takes along.
  struct Around {
    std::uint64_t step;
    std::uint64_t step_span;
    std::uint64_t phase_epoch;
  };

  Around around() const {
    return header_->surroundings.read([](const Cell<Surroundings>& place) {
      return Around{place.word(0), place.word(1), place.word(2)};
    });
  }

  static std::uint64_t word(std::int64_t value) { return static_cast<std::uint64_t>(value); }
  static std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }

  Frame frame(std::uint32_t section, std::int64_t now_ns, const Work& work,
              std::uint64_t span) const {
    const Surroundings now = header_->surroundings.load();
    Frame frame{};
    frame.span = span;
    frame.start_ns = now_ns;
    frame.step = now.step;
    frame.step_span = now.step_span;
    frame.tokens = work.tokens;
    frame.microbatch = work.microbatch;
    frame.section = section;
    frame.phase = now.phase;
    frame.epoch = now.epoch;
    return frame;
  }

  static Record ended(const Frame& frame, std::uint32_t thread, std::int64_t end_ns,
                      std::uint32_t flags) {
    Record record{};
    record.span = frame.span;
    record.parent = frame.step_span;
    record.step_span = frame.step_span;
    record.step = frame.step;
    record.start_ns = frame.start_ns;
    record.end_ns = end_ns;
    record.tokens = frame.tokens;
    record.microbatch = frame.microbatch;
    record.section = frame.section;
    record.parent_section = kNoSection;
    record.phase = frame.phase;
    record.epoch = frame.epoch;
    record.thread = thread;
    record.flags = flags;
    return record;
  }

  // The run around it, unless that is of another step, and so of another trace.
  static void put_inside(Record& record, const Frame& around) {
    if (around.step_span != record.step_span) return;
    record.parent = around.span;
    record.parent_section = around.section;
  }

  static std::int64_t later(std::int64_t than, const ThreadSlot& slot) {
    const std::int64_t end_ns = slot.last_end_ns.load(std::memory_order_relaxed);
    return end_ns > than ? end_ns : than;
  }

  Header* header_;
  Ring ring_;
  ThreadTable threads_;
  std::atomic<bool> is_on_{false};
  std::atomic<std::uint64_t> limit_{kRingCapacity};
  std::atomic<std::uint64_t> spans_{0};
  std::atomic<std::uint32_t> last_thread_{0};
  std::mutex taking_;
  bool open_step_ = false;  // of the stepping thread, one at a time
  std::uint32_t step_phase_ = 0;
  std::int64_t step_waited_before_ns_ = 0;  // of the stepping thread
};

}  // namespace otel_straggler
