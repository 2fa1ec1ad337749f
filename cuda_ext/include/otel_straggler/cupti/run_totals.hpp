// GPU time of the runs of sections: what their kernels took, by the run that was innermost when
// they were launched. A run's numbers go on to the run around it once they have been handed out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "otel_straggler/cupti/busy_time.hpp"
#include "otel_straggler/cupti/current_run.hpp"
#include "otel_straggler/cupti/kernel_names.hpp"

namespace otel_straggler::cupti {

struct RunTotals {
  struct Device {
    std::uint32_t device;
    BusyTime busy;
  };

  Run around = kNoRun;      // once taken: where the rest goes
  std::int64_t since_ns = 0;
  bool is_taken = false;
  bool is_flawed = false;   // a kernel of it has no timestamps
  bool is_in_doubt = false;  // a run inside it was handed out without all its kernels
  std::uint32_t seen = 0;   // kernels launched in this very run, sound or not
  std::uint32_t kernels = 0;
  std::uint64_t kernel_ns = 0;
  std::uint64_t nccl_ns = 0;
  std::vector<Device> devices;

  BusyTime& busy_of(std::uint32_t device) {
    for (Device& one : devices) {
      if (one.device == device) return one.busy;
    }
    devices.push_back({device, {}});
    devices.back().busy.reserve();
    return devices.back().busy;
  }

  void add(KernelClass its, std::uint32_t device, const Interval& time) {
    const std::uint64_t took_ns = time.end_ns - time.start_ns;
    ++kernels;
    kernel_ns += took_ns;
    if (its == KernelClass::kNccl) nccl_ns += took_ns;
    busy_of(device).add(time);
  }

  void add(RunTotals& inner) {
    kernels += inner.kernels;
    kernel_ns += inner.kernel_ns;
    nccl_ns += inner.nccl_ns;
    is_flawed = is_flawed || inner.is_flawed;
    is_in_doubt = is_in_doubt || inner.is_in_doubt;
    for (Device& one : inner.devices) busy_of(one.device).add(one.busy);
  }

  // Of the device that was busy for longest: devices do not add up to time.
  std::uint64_t busy_ns() {
    std::uint64_t longest = 0;
    for (Device& one : devices) longest = std::max(longest, one.busy.total_ns());
    return longest;
  }
};

class RunTable {
 public:
  static constexpr std::size_t kMaxRuns = 16'384;

  void set_now(std::int64_t now_ns) { now_ns_ = now_ns; }

  // Made if it is not there. The answer holds until the next call.
  RunTotals& at(Run run) {
    if (last_ != kNowhere && rows_[last_].run == run) return rows_[last_].totals;
    return another(run);
  }

  RunTotals* find(Run run) {
    const std::uint32_t place = place_of(run);
    return place == kNowhere ? nullptr : &rows_[place].totals;
  }

  // Which run gets a kernel of this run: itself, or the next run around it that was not handed out;
  // null if there is none. Whether it is too late for the run itself is reported by `is_late`.
  RunTotals* receiver(Run run, bool& is_late) {
    is_late = false;
    for (unsigned depth = 0; depth < kDeepest && run != kNoRun; ++depth) {
      RunTotals& it = at(run);
      if (!it.is_taken) return &it;
      is_late = true;
      run = it.around;
    }
    return nullptr;
  }

  // The run's numbers have been handed out; from now on they are those of the run around it.
  void pass_on(Run run, Run around) {
    RunTotals inner = std::exchange(at(run), RunTotals());
    if (around != kNoRun) at(around).add(inner);
    RunTotals& it = at(run);
    it.since_ns = inner.since_ns;
    it.is_taken = true;
    it.around = around;
    keep(std::move(inner.devices));
  }

  std::size_t size() const { return rows_.size(); }
  // Runs of late that were given up before they were handed out.
  std::uint64_t evicted() const { return evicted_; }

 private:
  static constexpr unsigned kDeepest = 64;
  static constexpr std::uint32_t kNowhere = UINT32_MAX;
  static constexpr std::int64_t kOfLateNs = 10'000'000'000;
  static constexpr std::size_t kMaxSpare = 4'096;
  static constexpr std::size_t kMaxSpareBytes = 1'024;

  struct Row {
    Run run;
    std::uint32_t next;  // the row before with the same entry in firsts_
    RunTotals totals;
  };

  // Memory that the next runs need not ask for.
  void keep(std::vector<RunTotals::Device> devices) {
    if (spare_.size() >= kMaxSpare || devices.size() != 1) return;
    devices[0].busy.clear();
    if (devices[0].busy.bytes() <= kMaxSpareBytes) spare_.push_back(std::move(devices));
  }

  // Not the one that was asked for last, as with most kernels.
  __attribute__((noinline)) RunTotals& another(Run run) {
    last_ = place_of(run);
    if (last_ == kNowhere) last_ = make(run);
    return rows_[last_].totals;
  }

  std::uint32_t place_of(Run run) const {
    std::uint32_t place = firsts_[run % kMaxRuns];
    while (place != kNowhere && rows_[place].run != run) place = rows_[place].next;
    return place;
  }

  // In the place of the oldest, once there is no room.
  std::uint32_t make(Run run) {
    const std::uint32_t place = oldest_;
    if (place < rows_.size()) {
      evict(place);
    } else {
      rows_.emplace_back();  // may throw: before anything has changed
    }
    oldest_ = (oldest_ + 1) % kMaxRuns;
    Row& row = rows_[place];
    row.run = run;
    row.next = std::exchange(firsts_[run % kMaxRuns], place);
    row.totals = RunTotals();
    row.totals.since_ns = now_ns_;
    if (!spare_.empty()) {
      row.totals.devices = std::move(spare_.back());
      spare_.pop_back();
      if (!spare_.empty()) __builtin_prefetch(spare_.back().data(), 1);
    }
    return place;
  }

  void evict(std::uint32_t place) {
    const Row& row = rows_[place];
    const bool is_of_late = now_ns_ - row.totals.since_ns < kOfLateNs;
    evicted_ += is_of_late && !row.totals.is_taken ? 1U : 0U;
    std::uint32_t* link = &firsts_[row.run % kMaxRuns];
    while (*link != place) link = &rows_[*link].next;
    *link = row.next;
  }

  // Numbers of runs follow each other, so their rows and firsts lie side by side.
  std::vector<Row> rows_;  // the oldest first, from oldest_ on and round
  std::vector<std::uint32_t> firsts_ = std::vector<std::uint32_t>(kMaxRuns, kNowhere);
  std::uint32_t oldest_ = 0;  // the place of the next row
  std::uint32_t last_ = kNowhere;
  std::vector<std::vector<RunTotals::Device>> spare_;
  std::int64_t now_ns_ = 0;
  std::uint64_t evicted_ = 0;
};

}  // namespace otel_straggler::cupti
