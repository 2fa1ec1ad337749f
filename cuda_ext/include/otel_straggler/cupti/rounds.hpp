// A thread that does the same again and again, with a pause between.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace otel_straggler::cupti {

class Rounds {
 public:
  // round: throws nothing. Signals are for other threads.
  void start(std::int64_t pause_ns, std::function<void()> round) {
    sigset_t every;
    sigset_t before;
    ::sigfillset(&every);
    ::pthread_sigmask(SIG_SETMASK, &every, &before);
    thread_ = std::thread([this, pause_ns, round = std::move(round)] { run(pause_ns, round); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_ending_ = true;
    }
    sleep_.notify_all();
    if (thread_.joinable()) thread_.join();
    is_ending_ = false;
  }

 private:
  void run(std::int64_t pause_ns, const std::function<void()>& round) {
    ::pthread_setname_np(::pthread_self(), "otel-stragg-gpu");
    std::unique_lock<std::mutex> lock(mutex_);
    while (!is_ending_) {
      lock.unlock();
      round();
      lock.lock();
      sleep_.wait_for(lock, std::chrono::nanoseconds(pause_ns), [this] { return is_ending_; });
    }
  }

  std::mutex mutex_;
  std::condition_variable sleep_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace otel_straggler::cupti
