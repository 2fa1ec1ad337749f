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

class Tracing {
 public:
  // library: without a reason. kinds: of records.
  Tracing(Library library, Way way, std::vector<Kind> kinds, const Callbacks& callbacks)
      : library_(std::move(library)), way_(way), kinds_(std::move(kinds)), callbacks_(callbacks) {}

  const Api& api() const { return library_.api; }
  std::uint32_t version() const { return library_.version; }

  // From scratch: other clients may have undone anything. The answer is why not, and then something
  // may have been done: tear it down.
  std::string set_up() {
    const Api& api = library_.api;
    std::uint8_t yes = 1;
    std::size_t size = sizeof(yes);
    api.set_attribute(kZeroedOutBuffers, &size, &yes);  // else CUPTI zeroes what is zero
    // Kineto leaves a clock of its own behind that counts ticks.
    if (api.register_clock != nullptr) api.register_clock(callbacks_.clock);
    Result code = api.register_callbacks(callbacks_.request, callbacks_.completed);
    if (code != kSuccess) return call_failed("cuptiActivityRegisterCallbacks", code);
    std::string reason = way_ == Way::kMarks ? set_up_marks() : set_up_launches();
    if (!reason.empty()) return reason;
    for (const Kind kind : kinds_) {
      code = api.enable(kind);
      if (code != kSuccess) return call_failed("cuptiActivityEnable", code);
    }
    return "";
  }

  // The reverse, whatever of it was done. What is whole comes back now.
  void tear_down() {
    const Api& api = library_.api;
    for (const Kind kind : kinds_) api.disable(kind);
    if (way_ == Way::kMarks) {
      api.enable_driver_api(kGetVersionCall, 0);
      api.disable(kExternalCorrelation);
    }
    if (subscriber_ != nullptr) api.unsubscribe(std::exchange(subscriber_, nullptr));
    api.flush_all(0);
  }

  // A call that is recorded, with this id attached.
  void mark(std::uint64_t id) noexcept {
    int version = 0;
    if (library_.api.push_external(kExternalKindCustom2, id) != kSuccess) return;
    library_.get_driver_version(&version);
    library_.api.pop_external(kExternalKindCustom2, &id);
  }

 private:
  std::string set_up_marks() {
    Result code = library_.api.enable(kExternalCorrelation);
    if (code != kSuccess) return call_failed("cuptiActivityEnable", code);
    code = library_.api.enable_driver_api(kGetVersionCall, 1);
    return code == kSuccess ? "" : call_failed("cuptiActivityEnableDriverApi", code);
  }

  std::string set_up_launches() {
    Result code = library_.api.subscribe(&subscriber_, callbacks_.on_call, callbacks_.user);
    if (code != kSuccess) {
      subscriber_ = nullptr;
      return call_failed("cuptiSubscribe", code);
    }
    for (const std::uint32_t call : kLaunchCalls) {
      code = library_.api.enable_callback(1, subscriber_, kDriverDomain, call);
      if (code != kSuccess) return call_failed("cuptiEnableCallback", code);
    }
    return "";
  }

  Library library_;
  Way way_;
  std::vector<Kind> kinds_;
  Callbacks callbacks_;
  Subscriber subscriber_ = nullptr;
};

}  // namespace otel_straggler::cupti
