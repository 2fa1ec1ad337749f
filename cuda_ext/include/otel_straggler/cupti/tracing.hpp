// Having CUPTI trace, and stop it: one set of calls and its reverse.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "otel_straggler/cupti/library.hpp"
#include "otel_straggler/cupti/pipeline.hpp"
#include "otel_straggler/cupti/reasons.hpp"

namespace otel_straggler::cupti {

// What CUPTI calls. It has no word for "no longer": the first two stay registered forever.
struct Callbacks {
  RequestBuffer request;
  BufferCompleted completed;
  OnCall on_call;
  Clock clock;
  void* user;  // of on_call
};

// The mark that this thread's call of the driver makes; 0: none. No initialiser, so no guard.
inline __thread std::uint64_t mark_of_this_call;

class Tracing {
 public:
  // library: without a reason. kinds: of records.
  Tracing(Library library, std::vector<Kind> kinds, const Callbacks& callbacks)
      : library_(std::move(library)), kinds_(std::move(kinds)), callbacks_(callbacks) {}

  const Api& api() const { return library_.api; }
  std::uint32_t version() const { return library_.version; }

  // From scratch: other clients may have undone anything. Kernels have no records before
  // switch_records(). The answer is why not, and then something may have been done: tear it down.
  std::string set_up(Way way) {
    way_ = way;
    is_way_refused_ = false;
    const Api& api = library_.api;
    std::uint8_t yes = 1;
    std::size_t size = sizeof(yes);
    api.set_attribute(kZeroedOutBuffers, &size, &yes);  // else CUPTI zeroes what is zero
    // Kineto leaves a clock of its own behind that counts ticks.
    if (api.register_clock != nullptr) api.register_clock(callbacks_.clock);
    Result code = api.register_callbacks(callbacks_.request, callbacks_.completed);
    if (code != kSuccess) return call_failed("cuptiActivityRegisterCallbacks", code);
    // Whether they can be had at all; which is no matter of the way.
    if (const Result refusal = switch_records(true); refusal != kSuccess) {
      return call_failed("cuptiActivityEnable", refusal);
    }
    switch_records(false);
    std::string reason = way_ == Way::kMarks ? set_up_marks() : set_up_calls();
    is_way_refused_ = !reason.empty();
    return reason;
  }

  // Whether set_up() failed by what this way needs, and another may do.
  bool is_way_refused() const { return is_way_refused_; }

  // On a real GPU 2 to 4 us. Graphs are recorded whole where that can be had: a graph that was
  // captured while there were no records has none for its kernels.
  Result switch_records(bool is_on) noexcept {
    for (const Kind kind : kinds_) {
      const Result code = is_on ? library_.api.enable(kind) : library_.api.disable(kind);
      if (is_on && kind == kGraphTrace) has_graphs_ = code == kSuccess;
      if (is_on && code != kSuccess && kind != kGraphTrace) return code;
    }
    return kSuccess;
  }

  // Whether every graph has a record.
  bool has_graphs() const { return has_graphs_; }

  // The reverse, whatever of it was done. What is whole comes back now.
  void tear_down() {
    const Api& api = library_.api;
    switch_records(false);
    if (way_ == Way::kMarks) {
      api.disable(kDriver);
      api.disable(kExternalCorrelation);
    }
    if (subscriber_ != nullptr) api.unsubscribe(std::exchange(subscriber_, nullptr));
    api.flush_all(0);
  }

  // A call that is recorded, with this id attached; or at which we are called.
  void mark(std::uint64_t id) noexcept {
    int version = 0;
    if (way_ == Way::kCallbacks) {
      mark_of_this_call = id;
      library_.get_driver_version(&version);
      mark_of_this_call = 0;
      return;
    }
    if (library_.api.push_external(kExternalKindCustom2, id) != kSuccess) return;
    library_.get_driver_version(&version);
    library_.api.pop_external(kExternalKindCustom2, &id);
  }

 private:
  // A call that is enabled alone gives no records, and no external ids with them; without those of
  // its kind none come. So the kind is on, which enables every call, and all but one are off again.
  std::string set_up_marks() {
    const Api& api = library_.api;
    Result code = api.enable(kDriver);
    if (code == kSuccess) code = api.enable(kExternalCorrelation);
    if (code != kSuccess) return call_failed("cuptiActivityEnable", code);
    for (std::uint32_t call = 1; call <= kHighestDriverCall; ++call) {
      if (call == kGetVersionCall) continue;
      code = api.enable_driver_api(call, 0);
      if (code != kSuccess && is_launch(call)) {  // launches would be recorded twice
        return call_failed("cuptiActivityEnableDriverApi", code);
      }
    }
    return "";
  }

  std::string set_up_calls() {
    Result code = library_.api.subscribe(&subscriber_, callbacks_.on_call, callbacks_.user);
    if (code != kSuccess) {
      subscriber_ = nullptr;
      return call_failed("cuptiSubscribe", code);
    }
    if (way_ == Way::kCallbacks) return enable_callback(kGetVersionCall);
    for (const std::uint32_t call : kLaunchCalls) {
      const std::string reason = enable_callback(call);
      if (!reason.empty()) return reason;
    }
    return "";
  }

  std::string enable_callback(std::uint32_t call) {
    const Result code = library_.api.enable_callback(1, subscriber_, kDriverDomain, call);
    return code == kSuccess ? "" : call_failed("cuptiEnableCallback", code);
  }

  Library library_;
  Way way_ = Way::kMarks;
  bool is_way_refused_ = false;
  bool has_graphs_ = false;
  std::vector<Kind> kinds_;
  Callbacks callbacks_;
  Subscriber subscriber_ = nullptr;
};

}  // namespace otel_straggler::cupti
