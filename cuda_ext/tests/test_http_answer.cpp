#include <doctest/doctest.h>

#include <random>
#include <string>

#include "otel_straggler/http_answer.hpp"

using namespace otel_straggler;
using State = AnswerReader::State;

namespace {

constexpr double kNowS = 784'111'777.0;  // Sun, 06 Nov 1994 08:49:37 GMT

AnswerReader read(const std::string& text) {
  AnswerReader reader("x-scorer", kNowS);
  reader.feed(text);
  return reader;
}

const std::string kChunked =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nX-SCORER: 1\r\n\r\n"
    "5;why=not\r\nhello\r\n1A\r\n, this is twenty-six bytes\r\n0\r\nTrailer: x\r\n\r\n";

}  // namespace

TEST_CASE("an answer with a length leaves the connection open") {
  AnswerReader reader = read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
  CHECK(reader.state() == State::kDone);
  CHECK(reader.keeps_open());
  CHECK(reader.answer().status == 200);
  CHECK(reader.answer().body == "hello");
  CHECK_FALSE(reader.answer().is_scorer);
}

TEST_CASE("an answer in chunks is the same wherever it is cut") {
  for (std::size_t cut = 0; cut <= kChunked.size(); ++cut) {
    AnswerReader reader("x-scorer", kNowS);
    reader.feed(kChunked.substr(0, cut));
    CHECK((reader.state() == State::kDone) == (cut == kChunked.size()));
    reader.feed(kChunked.substr(cut));
    REQUIRE(reader.state() == State::kDone);
    CHECK(reader.answer().body == "hello, this is twenty-six bytes");
    CHECK(reader.answer().is_scorer);
    CHECK(reader.keeps_open());
  }
}

TEST_CASE("an answer without a length ends with the connection") {
  AnswerReader reader = read("HTTP/1.0 503 Busy\r\nRetry-After: 7\r\n\r\nlater");
  CHECK(reader.state() == State::kReading);
  CHECK(reader.end() == State::kDone);
  CHECK(reader.answer().body == "later");
  CHECK(reader.answer().retry_after_s == 7.0);
  CHECK_FALSE(reader.keeps_open());
  CHECK(reader.answer().is_retryable());
}

TEST_CASE("an answer that is cut off is none") {
  CHECK(read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell").end() == State::kMalformed);
  CHECK(read("HTTP/1.1 200 OK\r\nContent-Le").end() == State::kMalformed);
  CHECK(read("").end() == State::kMalformed);
}

TEST_CASE("who says that it closes is not asked again") {
  CHECK_FALSE(read("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").keeps_open());
  CHECK(read("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n").keeps_open());
  CHECK(read("HTTP/1.1 204 No Content\r\n\r\n").keeps_open());
}

TEST_CASE("a go-ahead is not the answer") {
  AnswerReader reader =
      read("HTTP/1.1 100 Continue\r\nX-Scorer: 1\r\n\r\nHTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n");
  CHECK(reader.state() == State::kDone);
  CHECK(reader.answer().status == 429);
  CHECK_FALSE(reader.answer().is_scorer);
}

TEST_CASE("what is no HTTP is refused") {
  for (const char* text : {"SSH-2.0-OpenSSH\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 20x OK\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"}) {
    CHECK(read(text).state() == State::kMalformed);
  }
}

TEST_CASE("a head without end and a body without end are bounded") {
  AnswerReader head("x-scorer", kNowS);
  head.feed("HTTP/1.1 200 OK\r\n");
  for (int line = 0; line < 10'000 && head.state() == State::kReading; ++line) {
    head.feed("X-More: yes\r\n");
  }
  CHECK(head.state() == State::kMalformed);
  AnswerReader line("x-scorer", kNowS);
  line.feed(std::string(100'000, 'x'));
  CHECK(line.state() == State::kMalformed);
  AnswerReader body("x-scorer", kNowS);
  body.feed("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
  const std::string part(1'000'000, 'x');
  for (int at = 0; at < 10 && body.state() == State::kReading; ++at) body.feed(part);
  CHECK(body.state() == State::kDone);
  CHECK(body.answer().body.size() == kLongestBody);
  CHECK_FALSE(body.keeps_open());
}

TEST_CASE("a server asks for patience in seconds or until a date") {
  CHECK(http::retry_after_s("0", kNowS) == 0.0);
  CHECK(http::retry_after_s("86400", kNowS) == kLongestRetryAfterS);
  CHECK(http::retry_after_s("Sun, 06 Nov 1994 08:49:50 GMT", kNowS) == 13.0);
  CHECK(http::retry_after_s("Sun, 06 Nov 1994 08:49:00 GMT", kNowS) == 0.0);
  CHECK(http::date("Thu, 29 Feb 2024 00:00:00 GMT") == 1'709'164'800);
  for (const char* text : {"", "soon", "-1", "Sun, 06 Xxx 1994 08:49:50 GMT", "1e3"}) {
    CHECK_FALSE(http::retry_after_s(text, kNowS));
  }
}

TEST_CASE("mangled answers neither crash nor keep more than their bound") {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = kChunked;
    for (unsigned change = random() % 4; change > 0; --change) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    text.resize(random() % (text.size() + 1));
    AnswerReader reader("x-scorer", kNowS);
    for (std::size_t at = 0; at < text.size(); at += 7) reader.feed(text.substr(at, 7));
    reader.end();
    CHECK(reader.answer().body.size() <= text.size());
  }
}
