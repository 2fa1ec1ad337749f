// What is taken from the ring goes to both who want it: the exporter here, the readers in Python.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "otel_straggler/recorder.hpp"

namespace otel_straggler {

enum class Reader : std::uint8_t { kPython, kExporter };

// Each reader drains the ring for both; what is the other's waits here, the oldest first. Each
// gets every record once, in the order of the ring.
class Handoff {
 public:
  explicit Handoff(std::size_t max_records = kRingCapacity) : max_records_(max_records) {}

  // Whether this reader gets records from now on; what waited for it is discarded.
  void set_listening(Reader who, bool is_listening) {
    const std::lock_guard<std::mutex> lock(mutex_);
    of(who) = Side();
    of(who).is_listening = is_listening;
  }

  // Whether the ring holds all that there is for Python, and no other reader needs it.
  bool is_for_python_alone() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !of(Reader::kExporter).is_listening && of(Reader::kPython).waiting.empty();
  }

  // Appends what waited for `who`, and up to `most` records of the ring; true if it was emptied.
  // Cost: a copy of 128 bytes a record, or two, during which the other reader has to wait.
  bool drain(Reader who, Recorder& recorder, std::size_t max_records, std::vector<Record>& out) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Side& mine = of(who);
    out.insert(out.end(), mine.waiting.begin(), mine.waiting.end());
    mine.waiting.clear();
    const std::size_t before = out.size();
    const std::size_t there = recorder.ring().size();
    out.resize(before + std::min(there, max_records));
    const std::size_t taken = recorder.drain(out.data() + before, std::min(there, max_records));
    out.resize(before + taken);
    Side& other = of(who == Reader::kPython ? Reader::kExporter : Reader::kPython);
    if (other.is_listening) other.put(out.data() + before, taken, max_records_);
    return there <= max_records;
  }

  // Records that were given up because this reader did not come.
  std::uint64_t lost(Reader who) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return of(who).lost;
  }

 private:
  struct Side {
    bool is_listening = false;
    std::uint64_t lost = 0;
    std::vector<Record> waiting;

    void put(const Record* records, std::size_t count, std::size_t max_records) {
      const std::size_t room = max_records - std::min(max_records, waiting.size());
      waiting.insert(waiting.end(), records, records + std::min(count, room));
      lost += count - std::min(count, room);
    }
  };

  Side& of(Reader who) { return sides_[static_cast<std::size_t>(who)]; }
  const Side& of(Reader who) const { return sides_[static_cast<std::size_t>(who)]; }

  std::size_t max_records_;
  mutable std::mutex mutex_;
  std::array<Side, 2> sides_;
};

}  // namespace otel_straggler
