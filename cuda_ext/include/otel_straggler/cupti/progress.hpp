// How far the GPU has come, as far as the buffers returned by CUPTI show.
//
// CUPTI does not report "that was all of this section". A later launch that has ended on the
// device's main stream shows it: streams run in order, and side streams are behind it by less than
// a flush.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "otel_straggler/cupti/correlation.hpp"

namespace otel_straggler::cupti {

class Progress {
 public:
  // A moment, and the newest mark or launch at that moment.
  void record(std::int64_t now_ns, std::uint32_t newest) {
    moments_.push_back({now_ns, newest});
    while (moments_.size() > kMaxMoments) moments_.pop_front();
  }

  // A kernel has ended and been given back.
  void saw(std::uint32_t device, std::uint32_t stream, WideId id) {
    if (last_ >= streams_.size() || streams_[last_].device != device ||
        streams_[last_].stream != stream) {
      last_ = place_of(device, stream);
    }
    Stream& it = streams_[last_];
    it.newest = std::max(it.newest, id);
    ++it.now;
  }

  // All that CUPTI had ready was given back. Streams that were busy a while ago are evicted: a
  // job may warm up on one and train on another.
  void flushed() {
    ++flushes_;
    if (flushes_ % kWhile != 0) return;
    for (Stream& stream : streams_) stream.before = std::exchange(stream.now, 0);
    streams_.erase(std::remove_if(streams_.begin(), streams_.end(),
                                  [](const Stream& stream) { return stream.kernels() == 0; }),
                   streams_.end());
  }
  std::uint64_t flushes() const { return flushes_; }

  // The newest mark or launch at the first moment at or after this one; false if that is to come.
  bool newest_at(std::int64_t time_ns, std::uint32_t& newest) const {
    const auto found = std::lower_bound(
        moments_.begin(), moments_.end(), time_ns,
        [](const Moment& moment, std::int64_t wanted) { return moment.time_ns < wanted; });
    if (found == moments_.end()) return false;
    newest = found->newest;
    return true;
  }

  // Whether every device that does a tenth of the work has ended something launched after this id.
  bool is_beyond(WideId id) const {
    std::uint64_t kernels = 0;
    for (const Stream& stream : streams_) kernels += stream.kernels();
    for (const Stream& stream : streams_) {
      const bool counts = is_main(stream) && stream.kernels() * 10 >= kernels;
      if (counts && stream.newest <= id) return false;
    }
    return !streams_.empty();
  }

 private:
  static constexpr std::size_t kMaxMoments = 256;
  static constexpr std::size_t kMaxStreams = 256;
  static constexpr std::uint64_t kWhile = 8;  // flushes

  struct Moment {
    std::int64_t time_ns;
    std::uint32_t newest;
  };
  struct Stream {
    std::uint32_t device;
    std::uint32_t stream;
    WideId newest;
    std::uint64_t now;     // kernels in this while
    std::uint64_t before;  // and in the one before

    std::uint64_t kernels() const { return now + before; }
  };

  bool is_main(const Stream& stream) const {
    return std::none_of(streams_.begin(), streams_.end(), [&](const Stream& other) {
      return other.device == stream.device && other.kernels() > stream.kernels();
    });
  }

  std::size_t place_of(std::uint32_t device, std::uint32_t stream) {
    for (std::size_t at = 0; at < streams_.size(); ++at) {
      if (streams_[at].device == device && streams_[at].stream == stream) return at;
    }
    if (streams_.size() >= kMaxStreams) return 0;
    streams_.push_back({device, stream, 0, 0, 0});
    return streams_.size() - 1;
  }

  std::deque<Moment> moments_;
  std::vector<Stream> streams_;
  std::size_t last_ = 0;
  std::uint64_t flushes_ = 0;
};

}  // namespace otel_straggler::cupti
