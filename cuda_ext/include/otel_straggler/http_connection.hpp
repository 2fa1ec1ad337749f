// Posts bodies to one URL over a kept TCP connection. A failure is an answer, never an exception,
// because the caller is a loop that has to go on.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "otel_straggler/http_answer.hpp"
#include "otel_straggler/clocks.hpp"

namespace otel_straggler {

inline constexpr std::int64_t kConnectNs = 5 * kSecondNs;

// Where requests go. `head` is all of a request's head but Content-Length and the empty line.
struct Target {
  std::string host;
  std::string port;
  std::string head;
  std::string scorer_header;  // in lower case
};

// Ends whatever waits on it, for good. Other threads may pull it.
class Interrupt {
 public:
  Interrupt() {
    if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0) ends_[0] = ends_[1] = -1;
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt() {
    for (const int end : ends_) {
      if (end >= 0) ::close(end);
    }
  }

  void pull() {
    const char one = 0;
    if (ends_[1] >= 0) static_cast<void>(!::write(ends_[1], &one, 1));
  }
  int waits_on() const { return ends_[0]; }

 private:
  int ends_[2];
};

class HttpConnection {
 public:
  HttpConnection(Target target, const Interrupt& interrupt)
      : target_(std::move(target)), interrupt_(&interrupt) {}
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection() { close(); }

  // Sends `body` and waits for the answer, until `deadline_ns` (monotonic) at most.
  Answer post(std::string_view body, std::int64_t deadline_ns) {
    error_.clear();
    if (socket_ >= 0 && is_stale()) close();
    if (socket_ < 0 && !connect(deadline_ns)) return failure();
    const std::string head =
        target_.head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
    AnswerReader reader(target_.scorer_header, static_cast<double>(wall_ns()) / 1e9);
    const bool is_sent = send(head, body, reader, deadline_ns);
    if (is_sent || reader.has_begun()) receive(reader, deadline_ns);
    if (reader.state() != AnswerReader::State::kDone) {
      if (reader.state() == AnswerReader::State::kMalformed) fail("it does not answer in HTTP/1.1");
      close();
      return failure();
    }
    if (!is_sent || !reader.keeps_open()) close();
    return std::move(reader.answer());
  }

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

  Answer failure() const {
    Answer answer;
    answer.error = error_.empty() ? "the connection was closed" : error_;
    return answer;
  }

  bool fail(std::string_view what, int error = 0) {
    error_ = what;
    if (error != 0) error_ += std::string(": ") + ::strerror(error);
    return false;
  }

  // Readable without a request: the server has closed it, or sent something unrequested.
  bool is_stale() const {
    pollfd one{socket_, POLLIN, 0};
    return ::poll(&one, 1, 0) != 0;
  }

  // --- connecting ----------------------------------------------------------------------------

  bool connect(std::int64_t deadline_ns) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(target_.host.c_str(), target_.port.c_str(), &hints, &found);
    if (error != 0) return fail(std::string("name resolution: ") + ::gai_strerror(error));
    const AddressList addresses(found, &::freeaddrinfo);
    const std::int64_t until_ns = std::min(deadline_ns, monotonic_ns() + kConnectNs);
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      if (connect_to(*one, until_ns)) return true;
    }
    return false;
  }

  bool connect_to(const addrinfo& address, std::int64_t until_ns) {
    socket_ = ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                       address.ai_protocol);
    if (socket_ < 0) return fail("socket", errno);
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (::connect(socket_, address.ai_addr, address.ai_addrlen) == 0) return true;
    int error = errno;
    if (error == EINPROGRESS && wait_for(POLLOUT, until_ns) != 0) {
      socklen_t size = sizeof(error);
      ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error == 0) return true;
    }
    if (error != EINPROGRESS) fail("connect", error);
    close();
    return false;
  }

  // --- one exchange --------------------------------------------------------------------------

  // False if the server did not take all of it; it may have answered all the same.
  bool send(std::string_view head, std::string_view body, AnswerReader& reader,
            std::int64_t deadline_ns) {
    std::size_t sent = 0;
    while (sent < head.size() + body.size()) {
      const short ready = wait_for(POLLOUT | POLLIN, deadline_ns);
      if (ready == 0) return false;
      if ((ready & POLLIN) != 0 && !read_some(reader)) return false;
      if (reader.state() != AnswerReader::State::kReading) return false;
      if ((ready & POLLOUT) == 0) continue;
      const ssize_t now = send_from(head, body, sent);
      if (now >= 0) {
        sent += static_cast<std::size_t>(now);
      } else if (errno != EAGAIN && errno != EINTR) {
        fail("send", errno);
        read_some(reader);  // what the server sent before it closed the connection
        return false;
      }
    }
    return true;
  }

  ssize_t send_from(std::string_view head, std::string_view body, std::size_t at) const {
    const std::string_view first = at < head.size() ? head.substr(at) : std::string_view();
    const std::string_view rest = body.substr(at < head.size() ? 0 : at - head.size());
    std::array<iovec, 2> parts{{{const_cast<char*>(first.data()), first.size()},
                                {const_cast<char*>(rest.data()), rest.size()}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return ::sendmsg(socket_, &message, MSG_NOSIGNAL);
  }

  void receive(AnswerReader& reader, std::int64_t deadline_ns) {
    while (reader.state() == AnswerReader::State::kReading) {
      if (wait_for(POLLIN, deadline_ns) == 0 || !read_some(reader)) return;
    }
  }

  // False if nothing can come any more.
  bool read_some(AnswerReader& reader) {
    std::array<char, 16'384> bytes;
    const ssize_t count = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (count > 0) {
      reader.feed({bytes.data(), static_cast<std::size_t>(count)});
      return true;
    }
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (count < 0) fail("receive", errno);
    if (count == 0) fail("the server closed the connection");
    if (count == 0 && reader.has_begun()) reader.end();
    return false;
  }

  // The events that are there; 0 if the deadline has passed or on an interrupt.
  short wait_for(short events, std::int64_t until_ns) {
    for (;;) {
      const std::int64_t left_ns = until_ns - monotonic_ns();
      if (left_ns <= 0) {
        fail("timed out");
        return 0;
      }
      pollfd both[2] = {{socket_, events, 0}, {interrupt_->waits_on(), POLLIN, 0}};
      const std::int64_t left_ms = std::min<std::int64_t>(left_ns / 1'000'000 + 1, 60'000);
      const int ready = ::poll(both, 2, static_cast<int>(left_ms));
      if (both[1].revents != 0) {
        fail("interrupted");
        return 0;
      }
      if (ready > 0 && both[0].revents != 0) {
        return static_cast<short>((both[0].revents & (POLLERR | POLLHUP)) != 0
                                      ? both[0].revents | events
                                      : both[0].revents);
      }
    }
  }

  Target target_;
  const Interrupt* interrupt_;
  int socket_ = -1;
  std::string error_;
};

}  // namespace otel_straggler
