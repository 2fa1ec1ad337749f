// A small value that another thread or process may copy while its owner replaces it.
//
// The value lies in words that are stored and loaded atomically, each with release and acquire, so
// a version that is stored before the words and checked after them shows whether a copy is whole.
// Fences would be fewer instructions on some processors, but ThreadSanitizer does not know them.
//
// The hot path works on single words: a value put together from halves and then copied in larger
// pieces makes a processor wait for its own stores, which cost a third of a section.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace otel_straggler {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<std::uint64_t>) == 8 && sizeof(std::atomic<std::uint32_t>) == 4);

template <typename Value>
class Cell {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) % 8 == 0);
  static constexpr std::size_t kWords = sizeof(Value) / 8;

 public:
  void store(const Value& value) {
    std::uint64_t words[kWords];
    std::memcpy(words, &value, sizeof(value));
    for (std::size_t at = 0; at < kWords; ++at) {
      words_[at].store(words[at], std::memory_order_release);
    }
  }

  std::uint64_t word(std::size_t at) const { return words_[at].load(std::memory_order_acquire); }

  void set_word(std::size_t at, std::uint64_t word) {
    words_[at].store(word, std::memory_order_release);
  }

  Value load() const {
    std::uint64_t words[kWords];
    for (std::size_t at = 0; at < kWords; ++at) {
      words[at] = words_[at].load(std::memory_order_acquire);
    }
    Value value;
    std::memcpy(&value, words, sizeof(value));
    return value;
  }

 private:
  std::atomic<std::uint64_t> words_[kWords];
};

// A value of one writer at a time and any readers. The writer fills the place that no reader is
// sent to and then sends readers there, so what a process that was killed leaves behind is whole.
template <typename Value>
class Published {
 public:
  void store(const Value& value) {
    const std::uint64_t next = version_.load(std::memory_order_relaxed) + 1;
    places_[next & 1].store(value);
    version_.store(next, std::memory_order_release);
  }

  // Never blocks: it retries only where a writer has finished in the meantime.
  Value load() const {
    return read([](const Cell<Value>& place) { return place.load(); });
  }

  // The same of a part: `get` may be called again, with another place.
  template <typename Get>
  auto read(Get get) const {
    std::uint64_t version = version_.load(std::memory_order_acquire);
    for (;;) {
      const auto found = get(places_[version & 1]);
      const std::uint64_t now = version_.load(std::memory_order_acquire);
      if (now == version) return found;
      version = now;
    }
  }

 private:
  std::atomic<std::uint64_t> version_;
  std::uint64_t spare_[7];
  Cell<Value> places_[2];
};

}  // namespace otel_straggler
