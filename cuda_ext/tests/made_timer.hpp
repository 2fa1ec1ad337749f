// A timer of the GPU that has numbers when it is told to.
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
    told_[span] = 1;
  }

  void ended(bool, std::uint64_t span, std::uint64_t, std::uint32_t) noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = told_.find(span);
    if (found != told_.end()) found->second = 2;
  }

  void add(const Record* records, std::size_t count) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.insert(waiting_.end(), records, records + count);
  }

  void take_ready(std::int64_t, std::vector<Record>& out) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++looks_;
    for (; is_fast_ && !waiting_.empty(); waiting_.pop_front()) {
      give(waiting_.front(), GpuState::kTimed, out);
    }
  }

  void take_all(bool is_complete, std::vector<Record>& out) override {
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

  void lose(std::uint64_t events) {
    const std::lock_guard<std::mutex> lock(mutex_);
    losses_.lost += events;
  }

  // Runs that were added without both their boundaries having been told.
  std::uint64_t untold() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return untold_;
  }

  // How often somebody has asked for runs that are ready.
  int looks() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return looks_;
  }

  std::size_t waiting() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.size();
  }

 private:
  void give(Record record, GpuState state, std::vector<Record>& out) {
    const auto found = told_.find(record.span);
    untold_ += found == told_.end() || found->second != 2 ? 1U : 0U;
    if (found != told_.end()) told_.erase(found);
    record.gpu.state = state;
    record.gpu.kernel_count = 1;
    out.push_back(record);
  }

  std::mutex mutex_;
  std::map<std::uint64_t, int> told_;
  std::deque<Record> waiting_;
  bool is_fast_ = true;
  int looks_ = 0;
  std::uint64_t untold_ = 0;
  GpuLosses losses_;
};

}  // namespace otel_straggler::made
