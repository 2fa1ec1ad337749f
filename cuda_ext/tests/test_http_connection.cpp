#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "loopback.hpp"

using namespace otel_straggler;

namespace {

std::int64_t in(double seconds) {
  return monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
}

}  // namespace

TEST_CASE("requests go over one connection, which is kept") {
  made::Server server([](const std::string& path, const std::string& body) {
    return made::ok(path + " " + body, "X-Scorer: 1\r\n");
  });
  const Interrupt interrupt;
  HttpConnection connection(server.target("/v1/traces"), interrupt);
  for (const char* body : {"one", "two", ""}) {
    const Answer answer = connection.post(body, in(20));
    CHECK(answer.status == 200);
    CHECK(answer.body == std::string("/v1/traces ") + body);
    CHECK(answer.is_scorer);
  }
  CHECK(server.connections() == 1);
}

TEST_CASE("a megabyte passes") {
  made::Server server([](const std::string&, const std::string& body) {
    return made::ok(std::to_string(body.size()));
  });
  const Interrupt interrupt;
  HttpConnection connection(server.target("/"), interrupt);
  CHECK(connection.post(std::string(5'000'000, 'x'), in(60)).body == "5000000");
}

TEST_CASE("a connection that the server has closed meanwhile is reopened") {
  made::Server server([](const std::string&, const std::string& body) {
    return body == "bye" ? "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                         : made::ok();
  });
  const Interrupt interrupt;
  HttpConnection connection(server.target("/"), interrupt);
  CHECK(connection.post("bye", in(20)).is_success());
  CHECK(connection.post("again", in(20)).is_success());
  CHECK(server.connections() == 2);
}

TEST_CASE("a connection that is closed instead of an answer is no answer") {
  made::Server server([](const std::string&, const std::string&) { return std::string(); });
  const Interrupt interrupt;
  HttpConnection connection(server.target("/"), interrupt);
  const Answer answer = connection.post("x", in(20));
  CHECK(answer.status == kNoAnswer);
  CHECK(answer.is_retryable());
  CHECK_FALSE(answer.error.empty());
}

TEST_CASE("a refused connection is reported") {
  Target target;
  {
    made::Server server([](const std::string&, const std::string&) { return made::ok(); });
    target = server.target("/");
  }
  const Interrupt interrupt;
  HttpConnection connection(target, interrupt);
  const Answer answer = connection.post("x", in(20));
  CHECK(answer.status == kNoAnswer);
  CHECK(answer.error.find("connect") != std::string::npos);
}

TEST_CASE("a name that does not exist is said") {
  const Interrupt interrupt;
  HttpConnection connection({"no-such-host.invalid", "1", "POST / HTTP/1.1\r\n", ""}, interrupt);
  CHECK(connection.post("x", in(20)).error.find("name resolution") == 0);
}

TEST_CASE("a server that does not answer is waited for until the deadline and no longer") {
  std::mutex silence;
  silence.lock();
  {
    made::Server server([&silence](const std::string&, const std::string&) {
      const std::lock_guard<std::mutex> lock(silence);
      return made::ok();
    });
    const Interrupt interrupt;
    HttpConnection connection(server.target("/"), interrupt);
    CHECK(connection.post("x", in(0.05)).error == "timed out");
    silence.unlock();
    CHECK(connection.post("x", in(20)).is_success());
  }
}

TEST_CASE("waiting for an answer can be interrupted") {
  std::mutex silence;
  silence.lock();
  made::Server server([&silence](const std::string&, const std::string&) {
    const std::lock_guard<std::mutex> lock(silence);
    return made::ok();
  });
  Interrupt interrupt;
  HttpConnection connection(server.target("/"), interrupt);
  std::thread stopper([&interrupt] { interrupt.pull(); });
  CHECK(connection.post("x", in(60)).error == "interrupted");
  stopper.join();
  silence.unlock();
}

TEST_CASE("an answer that is no HTTP is named so") {
  made::Server server([](const std::string&, const std::string&) { return "SSH-2.0\r\n"; });
  const Interrupt interrupt;
  HttpConnection connection(server.target("/"), interrupt);
  CHECK(connection.post("x", in(20)).error == "it does not answer in HTTP/1.1");
}
