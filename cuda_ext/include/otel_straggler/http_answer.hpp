// An HTTP/1.1 answer, read piece by piece as it comes. No sockets here.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace otel_straggler {

inline constexpr int kNoAnswer = 0;
inline constexpr int kTooManyRequests = 429;
inline constexpr std::size_t kLongestHead = 65'536;
inline constexpr std::size_t kLongestBody = 4 * 1'024 * 1'024;
inline constexpr double kLongestRetryAfterS = 300.0;

struct Answer {
  int status = kNoAnswer;
  bool is_scorer = false;               // it has the header that identifies a scorer
  std::optional<double> retry_after_s;  // as requested by the server
  std::string body;                     // 4 MiB of it at most
  std::string error;                    // why there is none; empty if there is

  bool is_success() const { return status >= 200 && status < 300; }

  // Whether the same may be sent again (OTLP specification, plus lost connections).
  bool is_retryable() const {
    return status == kNoAnswer || status == kTooManyRequests || (status >= 502 && status <= 504);
  }
};

namespace http {

inline std::string lower(std::string_view text) {
  std::string copy(text);
  for (char& c : copy) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return copy;
}

inline std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Digits and nothing else; none if there are others or too many.
inline std::optional<std::uint64_t> number(std::string_view digits, unsigned base = 10) {
  if (digits.empty() || digits.size() > 15) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : digits) {
    const auto digit = static_cast<unsigned>(c >= '0' && c <= '9'   ? c - '0'
                                             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                                    : 99);
    if (digit >= base) return std::nullopt;
    value = value * base + digit;
  }
  return value;
}

// Days from 1970-01-01 of a date of the Gregorian calendar.
inline std::int64_t days_from_1970(std::int64_t year, std::int64_t month, std::int64_t day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = year / 400;
  const std::int64_t of_era = year - era * 400;
  const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146'097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719'468;
}

// "Sun, 06 Nov 1994 08:49:37 GMT" as Unix seconds: the one form that servers must send.
inline std::optional<std::int64_t> date(std::string_view text) {
  constexpr std::string_view kMonths = "janfebmaraprmayjunjulaugsepoctnovdec";
  if (text.size() != 29 || text.substr(25) != " GMT") return std::nullopt;
  const std::size_t month = kMonths.find(lower(text.substr(8, 3)));
  const auto day = number(text.substr(5, 2));
  const auto year = number(text.substr(12, 4));
  const auto hour = number(text.substr(17, 2));
  const auto minute = number(text.substr(20, 2));
  const auto second = number(text.substr(23, 2));
  if (month == std::string_view::npos || month % 3 != 0 || !day || !year || !hour || !minute ||
      !second || *year < 1'970) {
    return std::nullopt;
  }
  const std::int64_t days =
      days_from_1970(static_cast<std::int64_t>(*year), static_cast<std::int64_t>(month / 3 + 1),
                     static_cast<std::int64_t>(*day));
  return days * 86'400 + static_cast<std::int64_t>(*hour * 3'600 + *minute * 60 + *second);
}

// The value of Retry-After: seconds, or a date. `now_s` is Unix time.
inline std::optional<double> retry_after_s(std::string_view value, double now_s) {
  std::optional<double> wait_s;
  if (const auto seconds = number(value)) {
    wait_s = static_cast<double>(*seconds);
  } else if (const auto until_s = date(value)) {
    wait_s = static_cast<double>(*until_s) - now_s;
  }
  if (!wait_s) return std::nullopt;
  return std::clamp(*wait_s, 0.0, kLongestRetryAfterS);
}

}  // namespace http

// Reads one answer. What follows it is ignored: requests are not pipelined here.
class AnswerReader {
 public:
  enum class State : std::uint8_t { kReading, kDone, kMalformed };

  // Args: scorer_header: its name in lower case. now_s: Unix time, for dates.
  AnswerReader(std::string_view scorer_header, double now_s)
      : scorer_header_(scorer_header), now_s_(now_s) {}

  State state() const { return state_; }
  bool has_begun() const { return has_begun_; }

  // Whether another request may be sent over the same connection.
  bool keeps_open() const { return state_ == State::kDone && keeps_open_; }

  Answer& answer() { return answer_; }

  State feed(std::string_view bytes) {
    has_begun_ = has_begun_ || !bytes.empty();
    buffer_.append(bytes);
    while (state_ == State::kReading && advance()) {
    }
    buffer_.erase(0, at_);
    at_ = 0;
    if (state_ == State::kReading && part_ != Part::kBody && buffer_.size() > kLongestHead) fail();
    return state_;
  }

  // The server has closed the connection.
  State end() {
    if (state_ == State::kReading) {
      if (part_ == Part::kBody && until_closed_) {
        finish(false);
      } else {
        fail();
      }
    }
    return state_;
  }

 private:
  enum class Part : std::uint8_t { kStatus, kHeader, kBody, kChunkSize, kChunkEnd, kTrailer };

  // One step; false if more bytes are needed, or none any more.
  bool advance() {
    if (part_ == Part::kBody) return read_body();
    const std::size_t end = buffer_.find('\n', at_);
    if (end == std::string::npos) return false;
    std::string_view line = std::string_view(buffer_).substr(at_, end - at_);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    at_ = end + 1;
    head_bytes_ += line.size();
    if (head_bytes_ > kLongestHead) return fail();
    return read_line(line);
  }

  bool read_line(std::string_view line) {
    switch (part_) {
      case Part::kStatus:
        return read_status(line);
      case Part::kHeader:
        return line.empty() ? end_head() : read_header(line);
      case Part::kChunkSize:
        return read_chunk_size(line);
      case Part::kChunkEnd:
        part_ = Part::kChunkSize;
        return line.empty() || fail();
      default:  // of trailers only the end matters
        return !line.empty() || finish(true);
    }
  }

  bool read_status(std::string_view line) {
    const std::uint64_t status = line.size() < 12 ? 0 : http::number(line.substr(9, 3)).value_or(0);
    if (line.substr(0, 7) != "HTTP/1." || status < 100) return fail();
    answer_.status = static_cast<int>(status);
    keeps_open_ = line[7] != '0';
    is_chunked_ = false;
    length_.reset();
    part_ = Part::kHeader;
    return true;
  }

  bool read_header(std::string_view line) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return fail();
    const std::string name = http::lower(line.substr(0, colon));
    const std::string_view value = http::trimmed(line.substr(colon + 1));
    if (name == "content-length") {
      length_ = http::number(value);
      if (!length_) return fail();
    } else if (name == "transfer-encoding") {
      is_chunked_ = http::lower(value).find("chunked") != std::string::npos;
    } else if (name == "connection") {
      const std::string connection = http::lower(value);
      if (connection.find("close") != std::string::npos) keeps_open_ = false;
      if (connection.find("keep-alive") != std::string::npos) keeps_open_ = true;
    } else if (name == "retry-after") {
      answer_.retry_after_s = http::retry_after_s(value, now_s_);
    } else if (name == scorer_header_) {
      answer_.is_scorer = true;
    }
    return true;
  }

  bool end_head() {
    if (answer_.status < 200) {  // "100 Continue": the answer itself is still to come
      part_ = Part::kStatus;
      answer_ = Answer{};
      return true;
    }
    if (answer_.status == 204 || answer_.status == 304) return finish(true);
    if (is_chunked_) {
      part_ = Part::kChunkSize;
      return true;
    }
    until_closed_ = !length_.has_value();
    left_ = length_.value_or(std::numeric_limits<std::uint64_t>::max());
    part_ = Part::kBody;
    return left_ > 0 || finish(true);
  }

  bool read_chunk_size(std::string_view line) {
    const auto size = http::number(http::trimmed(line.substr(0, line.find(';'))), 16);
    if (!size) return fail();
    left_ = *size;
    part_ = left_ == 0 ? Part::kTrailer : Part::kBody;
    return true;
  }

  bool read_body() {
    const std::size_t here = std::min<std::uint64_t>(buffer_.size() - at_, left_);
    const std::size_t room = kLongestBody - answer_.body.size();
    answer_.body.append(buffer_, at_, std::min(here, room));
    at_ += here;
    left_ -= here;
    if (answer_.body.size() >= kLongestBody && left_ > 0) return finish(false);
    if (left_ > 0) return false;
    if (!is_chunked_) return finish(true);
    part_ = Part::kChunkEnd;
    return true;
  }

  bool finish(bool may_keep_open) {
    keeps_open_ = keeps_open_ && may_keep_open;
    state_ = State::kDone;
    return false;
  }

  bool fail() {
    state_ = State::kMalformed;
    return false;
  }

  std::string_view scorer_header_;
  double now_s_;
  Answer answer_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::size_t head_bytes_ = 0;
  std::uint64_t left_ = 0;
  std::optional<std::uint64_t> length_;
  State state_ = State::kReading;
  Part part_ = Part::kStatus;
  bool has_begun_ = false;
  bool keeps_open_ = true;
  bool is_chunked_ = false;
  bool until_closed_ = false;
};

}  // namespace otel_straggler
