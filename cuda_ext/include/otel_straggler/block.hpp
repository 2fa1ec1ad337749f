// The one piece of memory that recording happens in: header, names, threads, ring.
//
// It may be a file, so that another process can see what a dead, stopped or blocked one was in.
// otel_straggler/client/ring_file.py reads it; the offsets here and there are one contract.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "otel_straggler/cell.hpp"
#include "otel_straggler/clocks.hpp"
#include "otel_straggler/ring.hpp"
#include "otel_straggler/threads.hpp"

namespace otel_straggler {

inline constexpr char kBlockMagic[8] = {'O', 'T', 'S', 'R', 'I', 'N', 'G', '\0'};
inline constexpr std::uint32_t kBlockVersion = 1;
inline constexpr std::uint64_t kThreadSlots = 1'024;
inline constexpr std::uint64_t kNamesBytes = 512 * 1'024;

// What surrounds the runs that begin now; and where the step stands.
struct Surroundings {
  std::int64_t step;        // kNoStep outside of one
  std::uint64_t step_span;  // kNoSpan outside of one
  std::uint32_t phase;
  std::uint32_t epoch;
  std::int64_t step_began_ns;     // of the last step that has begun
  std::int64_t last_step;         // kNoStep before the first
  std::uint32_t stepping_thread;  // that began it; kNoThread before the first
  std::uint32_t is_on;
  char session_id[16];
};
static_assert(sizeof(Surroundings) == 64 && offsetof(Surroundings, phase) == 16);

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t record_version;
  std::uint32_t header_bytes;
  std::uint32_t record_bytes;
  std::uint32_t slot_bytes;
  std::uint32_t frames_per_slot;
  std::uint64_t total_bytes;
  std::uint64_t names_offset;
  std::uint64_t names_bytes;
  std::uint64_t slots_offset;
  std::uint64_t slots;
  std::uint64_t ring_offset;
  std::uint64_t capacity;
  std::uint64_t pid;
  std::int64_t wall_offset_ns;  // Unix time minus CLOCK_MONOTONIC when the block was made
  std::atomic<std::int64_t> alive_ns;  // when the exporter last ran; 0: it never did
  std::uint64_t spare[2];
  Published<Surroundings> surroundings;
  RingControl ring;
  alignas(64) std::atomic<std::uint64_t> names_used;  // bytes
  std::atomic<std::uint64_t> names_left_out;
  std::atomic<std::uint64_t> slots_used;
  std::atomic<std::uint64_t> threads_left_out;
  std::atomic<std::uint64_t> frames_left_out;  // executions that began deeper than is published
  std::atomic<std::int64_t> ended_threads_end_ns;
};
inline constexpr std::uint64_t kHeaderBytes = 4'096;
// From here to the end of the header stands who the process is, as JSON after its length; Python
// writes it into the file.
inline constexpr std::uint64_t kIdentityOffset = 1'024;
static_assert(sizeof(Header) <= kIdentityOffset && offsetof(Header, alive_ns) == 104);
static_assert(offsetof(Header, total_bytes) == 32 && offsetof(Header, wall_offset_ns) == 96);
static_assert(offsetof(Header, surroundings) == 128 && offsetof(Header, ring) == 320);
static_assert(offsetof(Header, names_used) == 448);

// A name in the region of names: a number, a table, bytes of text, padded to 8.
struct NameEntry {
  std::uint32_t number;
  std::uint16_t table;
  std::uint16_t length;
};
enum class NameTable : std::uint16_t { kSections = 1, kPhases = 2 };

class Block {
 public:
  explicit Block(std::uint64_t capacity = kRingCapacity, std::uint64_t slots = kThreadSlots)
      : capacity_(capacity), slots_(slots) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (memory_ != nullptr) ::munmap(memory_, total_bytes());
  }

  // Memory of this process alone. 0, or an errno.
  int open() { return map(-1, MAP_PRIVATE | MAP_ANONYMOUS); }

  // A new file. Its blocks are allocated now: writing to a mapping on a full disk is a signal that
  // no data survives. 0, or an errno, and then there is no file.
  int open(const char* path) {
    const int file = ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return errno;
    int error = ::posix_fallocate(file, 0, static_cast<off_t>(total_bytes()));
    if (error == 0) error = map(file, MAP_SHARED);
    ::close(file);
    if (error != 0) ::unlink(path);
    return error;
  }

  bool is_open() const { return memory_ != nullptr; }
  std::uint64_t total_bytes() const { return ring_offset() + capacity_ * sizeof(Record); }
  const unsigned char* memory() const { return memory_; }
  Header& header() const { return *reinterpret_cast<Header*>(memory_); }
  Ring ring() const {
    return {header().ring, reinterpret_cast<Record*>(memory_ + ring_offset()), capacity_};
  }
  ThreadTable threads() const {
    return {reinterpret_cast<ThreadSlot*>(memory_ + slots_offset()), slots_, header().slots_used};
  }

  // Appends; false if there is no room. One thread at a time.
  bool publish(NameTable table, std::uint32_t number, const char* text, std::size_t length) {
    std::atomic<std::uint64_t>& used = header().names_used;
    const std::uint64_t at = used.load(std::memory_order_relaxed);
    if (length > UINT16_MAX || at > kNamesBytes ||
        sizeof(NameEntry) + padded(length) > kNamesBytes - at) {
      header().names_left_out.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    const NameEntry entry{number, static_cast<std::uint16_t>(table),
                          static_cast<std::uint16_t>(length)};
    std::memcpy(memory_ + kHeaderBytes + at, &entry, sizeof(entry));
    std::memcpy(memory_ + kHeaderBytes + at + sizeof(entry), text, length);
    used.store(at + sizeof(entry) + padded(length), std::memory_order_release);
    return true;
  }

 private:
  static std::uint64_t padded(std::uint64_t length) { return (length + 7) / 8 * 8; }
  static std::uint64_t slots_offset() { return kHeaderBytes + kNamesBytes; }
  std::uint64_t ring_offset() const { return slots_offset() + slots_ * sizeof(ThreadSlot); }

  int map(int file, int flags) {
    void* found = ::mmap(nullptr, total_bytes(), PROT_READ | PROT_WRITE, flags, file, 0);
    if (found == MAP_FAILED) return errno;
    memory_ = static_cast<unsigned char*>(found);
    describe();
    return 0;
  }

  void describe() {
    Header& header = this->header();
    header.version = kBlockVersion;
    header.record_version = kRecordVersion;
    header.header_bytes = kHeaderBytes;
    header.record_bytes = sizeof(Record);
    header.slot_bytes = sizeof(ThreadSlot);
    header.frames_per_slot = kPublishedFrames;
    header.total_bytes = total_bytes();
    header.names_offset = kHeaderBytes;
    header.names_bytes = kNamesBytes;
    header.slots_offset = slots_offset();
    header.slots = slots_;
    header.ring_offset = ring_offset();
    header.capacity = capacity_;
    header.pid = static_cast<std::uint64_t>(::getpid());
    header.wall_offset_ns = wall_ns() - monotonic_ns();
    Surroundings nothing{};
    nothing.step = nothing.last_step = kNoStep;
    header.surroundings.store(nothing);
    std::memcpy(header.magic, kBlockMagic, sizeof(kBlockMagic));
  }

  std::uint64_t capacity_;
  std::uint64_t slots_;
  unsigned char* memory_ = nullptr;
};

}  // namespace otel_straggler
