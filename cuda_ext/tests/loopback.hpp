// A server on a free port of this machine that does to each connection what the test says.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "otel_straggler/http_connection.hpp"

namespace otel_straggler::made {

// Answers each request with what `answer` gives for it: (path, body) -> the whole answer; empty:
// closes the connection instead.
class Server {
 public:
  using Handler = std::function<std::string(const std::string& path, const std::string& body)>;

  explicit Server(Handler answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    ::listen(listener_, 16);
    socklen_t size = sizeof(address);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept(); });
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  ~Server() {
    is_closing_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const int peer : peers_) ::shutdown(peer, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }

  Target target(const std::string& path) const {
    const std::string port = std::to_string(port_);
    return {"127.0.0.1", port, "POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1:" + port + "\r\n",
            "x-scorer"};
  }
  int connections() const { return connections_; }

 private:
  void accept() {
    for (;;) {
      const int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) return;
      ++connections_;
      const std::lock_guard<std::mutex> lock(mutex_);
      if (is_closing_) ::shutdown(peer, SHUT_RDWR);
      peers_.push_back(peer);
      threads_.emplace_back([this, peer] {
        serve(peer);
        const std::lock_guard<std::mutex> inner(mutex_);
        peers_.erase(std::find(peers_.begin(), peers_.end(), peer));
        ::close(peer);
      });
    }
  }

  void serve(int peer) {
    std::string bytes;
    for (;;) {
      std::size_t head = std::string::npos;
      while ((head = bytes.find("\r\n\r\n")) == std::string::npos) {
        if (!read_more(peer, bytes)) return;
      }
      const std::size_t at = bytes.find("Content-Length: ") + 16;
      const std::size_t length = std::stoul(bytes.substr(at));
      while (bytes.size() < head + 4 + length) {
        if (!read_more(peer, bytes)) return;
      }
      const std::string path = bytes.substr(5, bytes.find(' ', 5) - 5);
      const std::string answer = answer_(path, bytes.substr(head + 4, length));
      bytes.erase(0, head + 4 + length);
      if (answer.empty()) return;
      if (::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  }

  static bool read_more(int peer, std::string& bytes) {
    char some[65'536];
    const ssize_t count = ::recv(peer, some, sizeof(some), 0);
    if (count <= 0) return false;
    bytes.append(some, static_cast<std::size_t>(count));
    return true;
  }

  Handler answer_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<bool> is_closing_{false};
  std::thread acceptor_;
  std::mutex mutex_;
  std::vector<int> peers_;
  std::vector<std::thread> threads_;
};

inline std::string ok(const std::string& body = "", const std::string& headers = "") {
  return "HTTP/1.1 200 OK\r\n" + headers + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

inline std::string status(int code, const std::string& headers = "") {
  return "HTTP/1.1 " + std::to_string(code) + " As Asked\r\n" + headers +
         "Content-Length: 0\r\n\r\n";
}

}  // namespace otel_straggler::made
