// Encoded requests on their way out: a queue bounded in bytes, in order, with patience. The same
// rules as otel_straggler/client/sender.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "otel_straggler/clocks.hpp"
#include "otel_straggler/http_answer.hpp"
#include "otel_straggler/protobuf.hpp"
#include "otel_straggler/trace_requests.hpp"

namespace otel_straggler {

// Something that a person wants to know of, once.
struct Note {
  enum class Kind : std::uint8_t { kTakesAgain, kKept, kRefused, kGivenUp };

  Kind kind;
  int status;         // of the answer; where they are given up, how many runs
  std::string words;  // of the server, or why there was no answer
};

// Runs that were lost, by reason, since the sender was made.
struct SendLosses {
  std::uint64_t queue_full = 0;
  std::uint64_t rejected = 0;
  std::uint64_t process_ended = 0;
};

inline constexpr double kFirstDelayS = 1.0;
inline constexpr double kLongestDelayS = 30.0;

// Seconds to wait before try number `failures + 1`. `jitter` lies in [0, 1).
inline double retry_delay_s(unsigned failures, double retry_after_s, double jitter) {
  const double ceiling_s =
      std::min(kFirstDelayS * std::exp2(std::min(failures - 1, 30U)), kLongestDelayS);
  return std::max(ceiling_s * (0.5 + 0.5 * jitter), retry_after_s);
}

// The last field of a number and type; whether there is one, in a message that is none else.
inline bool find_field(Bytes message, std::uint32_t wanted, WireType type, Field& found) {
  FieldReader fields(message);
  bool is_found = false;
  for (Field field; fields.next(field);) {
    if (!field.is(wanted, type)) continue;
    found = field;
    is_found = true;
  }
  return is_found && !fields.is_malformed();
}

inline Bytes bytes_in(std::string_view body) {
  return {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()};
}

// Rejected spans of an ExportTraceServiceResponse; 0 of a proxy's idea of success.
inline std::uint64_t rejected_spans(std::string_view body) {
  Field partial;
  Field rejected;
  if (!find_field(bytes_in(body), 1, WireType::kLength, partial)) return 0;
  if (!find_field(partial.content, 1, WireType::kVarint, rejected)) return 0;
  return static_cast<std::int64_t>(rejected.value) < 0 ? 0 : rejected.value;
}

// The message of a google.rpc.Status on one line of ASCII; empty of a proxy's page.
inline std::string message_of(std::string_view body) {
  constexpr std::size_t kLongest = 300;
  Field message;
  if (!find_field(bytes_in(body), 2, WireType::kLength, message)) return {};
  std::string text = text_of(message.content).substr(0, kLongest);
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return text;
}

class SpanSender {
 public:
  using Request = encoding::Request;
  using Post = std::function<Answer(std::string_view body, std::int64_t deadline_ns)>;

  explicit SpanSender(std::uint64_t budget_bytes)
      : budget_bytes_(budget_bytes), random_(std::random_device{}()) {}

  std::size_t queued_requests() const { return queue_.size(); }
  std::uint64_t queued_bytes() const { return queued_bytes_; }
  const SendLosses& losses() const { return losses_; }

  // Some requests that were sent, for their memory.
  std::vector<Request>& sent() { return sent_; }

  // What has come up since the last time.
  std::vector<Note> drain_notes() { return std::exchange(notes_, {}); }

  // Queues a request; the newest telemetry is worth most, so the oldest makes room.
  void put(Request request) {
    queued_bytes_ += request.size();
    queue_.push_back(std::move(request));
    while (queued_bytes_ > budget_bytes_) losses_.queue_full += pop().runs();
  }

  // Another request got through: if this one found no server, it need not wait any longer. A server
  // that asked to back off is still respected.
  void mark_reachable() {
    if (was_unreachable_) not_before_ns_ = 0;
  }

  // Sends what is queued until `until_ns`, or until a back-off begins.
  void send(std::int64_t until_ns, std::int64_t timeout_ns, const Post& post) {
    while (!queue_.empty()) {
      const std::int64_t now_ns = monotonic_ns();
      if (now_ns >= until_ns || now_ns < not_before_ns_) return;
      try_oldest(now_ns + timeout_ns, post);
    }
  }

  // The same at the end: no try outlives `deadline_ns`.
  void send_before(std::int64_t deadline_ns, std::int64_t timeout_ns, const Post& post) {
    not_before_ns_ = 0;
    while (!queue_.empty()) {
      const std::int64_t now_ns = monotonic_ns();
      if (now_ns >= deadline_ns || now_ns < not_before_ns_) return;
      try_oldest(std::min(deadline_ns, now_ns + timeout_ns), post);
    }
  }

  // What is queued will not be sent: count it.
  void give_up() {
    std::uint64_t runs = 0;
    while (!queue_.empty()) runs += pop().runs();
    losses_.process_ended += runs;
    const int lost = static_cast<int>(std::min<std::uint64_t>(runs, 2'000'000'000));
    if (runs > 0) notes_.push_back({Note::Kind::kGivenUp, lost, ""});
  }

 private:
  static constexpr std::size_t kMaxNotes = 64;
  static constexpr std::size_t kMaxSent = 16;

  void try_oldest(std::int64_t deadline_ns, const Post& post) {
    const Request& oldest = queue_.front();
    const Answer answer =
        post({reinterpret_cast<const char*>(oldest.data()), oldest.size()}, deadline_ns);
    if (answer.is_success()) {
      record_success(answer, oldest.runs());
      Request done = pop();
      if (sent_.size() < kMaxSent) sent_.push_back(std::move(done));
    } else if (answer.is_retryable()) {
      wait(answer);
    } else {
      losses_.rejected += pop().runs();
      log_once(Note::Kind::kRefused, answer);
    }
  }

  Request pop() {
    Request oldest = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= oldest.size();
    return oldest;
  }

  void record_success(const Answer& answer, std::uint64_t runs) {
    if (failures_ > 0) log_once(Note::Kind::kTakesAgain, answer);
    failures_ = 0;
    was_unreachable_ = false;
    logged_statuses_.clear();
    losses_.rejected += std::min(rejected_spans(answer.body), runs);
  }

  void wait(const Answer& answer) {
    ++failures_;
    was_unreachable_ = answer.status == kNoAnswer;
    const double jitter = std::uniform_real_distribution<double>()(random_);
    const double delay_s = retry_delay_s(failures_, answer.retry_after_s.value_or(0.0), jitter);
    not_before_ns_ = monotonic_ns() + static_cast<std::int64_t>(delay_s * 1e9);
    log_once(Note::Kind::kKept, answer);
  }

  // Of each status once, until all is well again.
  void log_once(Note::Kind kind, const Answer& answer) {
    const auto end = logged_statuses_.end();
    if (std::find(logged_statuses_.begin(), end, answer.status) != end) return;
    logged_statuses_.push_back(answer.status);
    if (notes_.size() >= kMaxNotes) return;
    notes_.push_back(
        {kind, answer.status, answer.error.empty() ? message_of(answer.body) : answer.error});
  }

  std::uint64_t budget_bytes_;
  std::minstd_rand random_;
  std::deque<Request> queue_;
  std::vector<Request> sent_;
  std::uint64_t queued_bytes_ = 0;
  SendLosses losses_;
  std::vector<Note> notes_;
  std::vector<int> logged_statuses_;
  unsigned failures_ = 0;
  bool was_unreachable_ = false;
  std::int64_t not_before_ns_ = 0;
};

}  // namespace otel_straggler
