// A timer of the GPU that has numbers when a test asks.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "otel_straggler/gpu_timer.hpp"

namespace otel_straggler::made {

class Timer final : public GpuTimer {
 public:
  void begun(bool, std::uint64_t span, std::uint32_t) noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    boundaries_[span] = 1;
  }

  void ended(bool, std::uint64_t span, std::uint64_t, std::uint32_t) noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = boundaries_.find(span);
    if (found != boundaries_.end()) found->second = 2;
  }

  void add(const Record* records, std::size_t count) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.insert(waiting_.end(), records, records + count);
  }

  void drain_ready(std::int64_t, std::vector<Record>& out) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++examined_;
    for (; is_fast_ && !waiting_.empty(); waiting_.pop_front()) {
      give(waiting_.front(), GpuState::kTimed, out);
    }
  }

  void drain_all(bool is_complete, std::vector<Record>& out) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (; !waiting_.empty(); waiting_.pop_front()) {
      give(waiting_.front(), is_complete ? GpuState::kTimed : GpuState::kMissing, out);
    }
  }

  GpuLosses losses() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return losses_;
  }

  // --- for tests ---------------------------------------------------------------------------------

  void set_fast(bool is_fast) {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_fast_ = is_fast;
  }

  void set_by_events() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_by_events_ = true;
  }

  void lose(std::uint64_t events) {
    const std::lock_guard<std::mutex> lock(mutex_);
    losses_.lost += events;
  }

  // Runs that were added without both their boundaries having been reported.
  std::uint64_t unreported() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return unreported_;
  }

  // How often a caller has asked for runs that are ready.
  int examined() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return examined_;
  }

  std::size_t waiting() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.size();
  }

 private:
  void give(Record record, GpuState state, std::vector<Record>& out) {
    const auto found = boundaries_.find(record.span);
    unreported_ += found == boundaries_.end() || found->second != 2 ? 1U : 0U;
    if (found != boundaries_.end()) boundaries_.erase(found);
    const bool is_by_events = is_by_events_ && state == GpuState::kTimed;
    record.gpu.state = is_by_events ? GpuState::kTimedByEvents : state;
    record.gpu.nccl_time_ns = is_by_events ? -1 : record.gpu.nccl_time_ns;
    record.gpu.kernel_count = 1;
    out.push_back(record);
  }

  std::mutex mutex_;
  std::map<std::uint64_t, int> boundaries_;
  std::deque<Record> waiting_;
  bool is_fast_ = true;
  bool is_by_events_ = false;
  int examined_ = 0;
  std::uint64_t unreported_ = 0;
  GpuLosses losses_;
};

}  // namespace otel_straggler::made
