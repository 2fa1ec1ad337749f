// The open runs of every thread, where a reader in another process can see them.
//
// Only its own thread changes a stack. The innermost frame is never changed while it is counted in
// `depth`, so a reader of a stopped or dead process finds whole frames; a reader of a running one
// checks the version and reads again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "otel_straggler/cell.hpp"
#include "otel_straggler/record.hpp"

namespace otel_straggler {

inline constexpr std::size_t kPublishedFrames = 32;   // of a thread, the outermost ones
inline constexpr std::size_t kMaxOpen = 4'096;  // runs that ended elsewhere stay open forever
inline constexpr std::uint32_t kNoThread = 0;

// A run that has begun.
struct Frame {
  std::uint64_t span;
  std::int64_t start_ns;
  std::int64_t step;  // kNoStep outside of one
  std::uint64_t step_span;
  std::int64_t tokens;
  std::int64_t microbatch;
  std::uint32_t section;
  std::uint32_t spare;
  std::uint32_t phase;
  std::uint32_t epoch;
};
static_assert(sizeof(Frame) == 64);
static_assert(offsetof(Frame, section) == 48 && offsetof(Frame, phase) == 56);

// The words of a frame, for the hot path. The last two are pairs, the first of each below.
enum FrameWord : std::size_t {
  kSpanWord,
  kStartWord,
  kStepWord,
  kStepSpanWord,
  kTokensWord,
  kMicrobatchWord,
  kSectionWord,     // section, spare
  kPhaseEpochWord,  // phase, epoch
};

// A place in the table of threads. Zeros are a free one.
struct alignas(64) ThreadSlot {
  std::atomic<std::uint32_t> thread;  // its number in this process, from 1
  std::atomic<std::uint32_t> tid;     // its number in the system
  std::atomic<std::uint64_t> version;  // odd while frames within the depth are moved
  std::atomic<std::uint64_t> depth;
  std::atomic<std::int64_t> last_end_ns;
  std::uint64_t spare[4];
  Cell<Frame> frames[kPublishedFrames];
};
static_assert(sizeof(ThreadSlot) == 64 + 64 * kPublishedFrames);

// The innermost open run that is published; none if nothing is open, or while frames are being
// moved.
inline std::optional<Frame> innermost(const ThreadSlot& slot) {
  for (int tries = 0; tries < 100; ++tries) {
    const std::uint64_t version = slot.version.load(std::memory_order_acquire);
    const std::uint64_t depth = slot.depth.load(std::memory_order_acquire);
    if (depth == 0) return std::nullopt;
    const std::size_t top = (depth < kPublishedFrames ? depth : kPublishedFrames) - 1;
    const Frame frame = slot.frames[top].load();
    const bool is_whole = version % 2 == 0 && slot.version.load() == version;
    if (is_whole) return frame;
  }
  return std::nullopt;
}

// A thread's own view of its open runs. Frames deeper than what is published are kept all the same.
// How long the thread has waited in collectives is private: no other process needs it.
class ThreadStack {
 public:
  // slot: null if the table was full; the runs of this thread are then not published.
  ThreadStack(ThreadSlot* slot, std::uint32_t number)
      : hidden_(slot == nullptr ? std::make_unique<ThreadSlot>() : nullptr),
        slot_(slot == nullptr ? hidden_.get() : slot),
        number_(number),
        version_((slot_->version.load(std::memory_order_relaxed) + 1) / 2 * 2) {}

  std::uint32_t number() const { return number_; }
  std::size_t depth() const { return depth_; }
  bool is_published() const { return hidden_ == nullptr; }
  ThreadSlot& slot() { return *slot_; }

  Frame at(std::size_t place) const {
    return place < kPublishedFrames ? slot_->frames[place].load()
                                    : deeper_[place - kPublishedFrames].frame;
  }

  // Adds to the time that this thread has waited in collectives.
  void add_wait(std::int64_t waited_ns) { waited_ns_ += waited_ns; }
  std::int64_t waited_ns() const { return waited_ns_; }

  // How much of it came since this run began.
  std::int64_t waited_in(std::size_t place) const { return waited_ns_ - waited_before(place); }

  // False if there is no memory for so deep a frame; the run is then not recorded.
  bool push(const Frame& frame) {
    if (depth_ >= kMaxOpen) evict_outermost(kMaxOpen / 2);
    if (depth_ < kPublishedFrames) {
      slot_->version.store(version_ += 2, std::memory_order_relaxed);
      slot_->frames[depth_].store(frame);
      waited_before_[depth_] = waited_ns_;
    } else {
      try {
        deeper_.push_back({frame, waited_ns_});
      } catch (const std::bad_alloc&) {
        return false;
      }
    }
    set_depth(depth_ + 1);
    return true;
  }

  // push() of words, where frames are published.
  void push_published(const std::uint64_t (&words)[8]) {
    slot_->version.store(version_ += 2, std::memory_order_relaxed);
    Cell<Frame>& cell = slot_->frames[depth_];
    for (std::size_t at = 0; at < 8; ++at) cell.set_word(at, words[at]);
    waited_before_[depth_] = waited_ns_;
    set_depth(depth_ + 1);
  }

  // One that is published.
  const Cell<Frame>& published(std::size_t place) const { return slot_->frames[place]; }

  // Removes the innermost frame, which is published.
  void drop_published() { set_depth(depth_ - 1); }

  // Takes out the innermost frame, or one that others lie upon. It must be there.
  void remove(std::size_t place) {
    if (place + 1 < depth_) return move_down(place, place + 1);
    set_depth(place);
    if (place >= kPublishedFrames) deeper_.pop_back();
  }

  // An execution of `who` that is not timed has begun.
  void skip(const void* who) {
    if (skips_.size() >= kMaxOpen) skips_.erase(skips_.begin(), skips_.begin() + kMaxOpen / 2);
    skips_.push_back({who, depth_});
  }
  bool has_skips() const { return !skips_.empty(); }

  // Whether what `who` ends now, the newest it has begun in this thread, is not timed; it is then
  // no longer remembered. Frames of `section` above it are newer.
  bool end_skip(const void* who, std::uint32_t section) {
    for (std::size_t at = skips_.size(); at-- > 0;) {
      if (skips_[at].who != who) continue;
      for (std::size_t above = skips_[at].depth; above < depth_; ++above) {
        if (this->at(above).section == section) return false;
      }
      skips_.erase(skips_.begin() + static_cast<std::ptrdiff_t>(at));
      return true;
    }
    return false;
  }

  void record_end(std::int64_t end_ns) {
    slot_->last_end_ns.store(end_ns, std::memory_order_relaxed);
  }

  // Numbers of runs come in blocks, so that threads seldom meet over them.
  std::uint64_t next_span(std::atomic<std::uint64_t>& spans) {
    if (next_span_ == last_span_) {
      next_span_ = spans.fetch_add(kSpansAtOnce, std::memory_order_relaxed);
      last_span_ = next_span_ + kSpansAtOnce;
    }
    return ++next_span_;
  }

 private:
  static constexpr std::uint64_t kSpansAtOnce = 1'024;

  struct Skip {
    const void* who;
    std::size_t depth;  // of the stack when it began
  };

  struct Deep {
    Frame frame;
    std::int64_t waited_before_ns;
  };

  std::int64_t waited_before(std::size_t place) const {
    return place < kPublishedFrames ? waited_before_[place]
                                    : deeper_[place - kPublishedFrames].waited_before_ns;
  }

  void evict_outermost(std::size_t count) { move_down(0, count); }

  void move_down(std::size_t to, std::size_t from) {
    slot_->version.store(++version_, std::memory_order_relaxed);
    for (; from < depth_; ++to, ++from) set(to, {at(from), waited_before(from)});
    set_depth(to);
    deeper_.resize(depth_ > kPublishedFrames ? depth_ - kPublishedFrames : 0);
    slot_->version.store(++version_, std::memory_order_release);
  }

  void set(std::size_t place, const Deep& moved) {
    if (place < kPublishedFrames) {
      slot_->frames[place].store(moved.frame);
      waited_before_[place] = moved.waited_before_ns;
    } else {
      deeper_[place - kPublishedFrames] = moved;
    }
  }

  void set_depth(std::size_t depth) {
    depth_ = depth;
    slot_->depth.store(depth, std::memory_order_release);
  }

  std::unique_ptr<ThreadSlot> hidden_;
  ThreadSlot* slot_;
  std::uint32_t number_;
  std::uint64_t version_;  // goes on where the thread before in this place has stopped
  std::size_t depth_ = 0;
  std::uint64_t next_span_ = 0;
  std::uint64_t last_span_ = 0;
  std::int64_t waited_ns_ = 0;
  std::int64_t waited_before_[kPublishedFrames] = {};  // the run in each place began
  std::vector<Deep> deeper_;
  std::vector<Skip> skips_;  // private: no other process needs what is not timed
};

// Places for the threads that live, given back when they end.
class ThreadTable {
 public:
  ThreadTable(ThreadSlot* slots, std::size_t count, std::atomic<std::uint64_t>& used)
      : slots_(slots), count_(count), used_(&used) {}

  // Null if all places are taken.
  ThreadSlot* acquire(std::uint32_t number, std::uint32_t tid) {
    for (std::size_t at = 0; at < count_; ++at) {
      std::uint32_t unowned = kNoThread;
      if (slots_[at].thread.load(std::memory_order_relaxed) != kNoThread ||
          !slots_[at].thread.compare_exchange_strong(unowned, number)) {
        continue;
      }
      slots_[at].last_end_ns.store(0, std::memory_order_relaxed);
      slots_[at].tid.store(tid, std::memory_order_release);
      mark_used(at + 1);
      return &slots_[at];
    }
    return nullptr;
  }

  static void release(ThreadSlot& slot) {
    slot.depth.store(0, std::memory_order_release);
    slot.tid.store(0, std::memory_order_release);
    slot.thread.store(kNoThread, std::memory_order_release);
  }

  // Places that were ever taken are among the first so many.
  std::size_t used() const {
    const std::uint64_t used = used_->load(std::memory_order_acquire);
    return used < count_ ? used : count_;
  }

  const ThreadSlot& operator[](std::size_t at) const { return slots_[at]; }

  // The place of this thread; null if it has none, or has ended.
  const ThreadSlot* find(std::uint32_t number) const {
    for (std::size_t at = 0; at < used(); ++at) {
      if (slots_[at].thread.load(std::memory_order_acquire) == number) return &slots_[at];
    }
    return nullptr;
  }

 private:
  void mark_used(std::uint64_t used) {
    std::uint64_t before = used_->load(std::memory_order_relaxed);
    while (before < used && !used_->compare_exchange_weak(before, used)) {
    }
  }

  ThreadSlot* slots_;
  std::size_t count_;
  std::atomic<std::uint64_t>* used_;
};

}  // namespace otel_straggler
