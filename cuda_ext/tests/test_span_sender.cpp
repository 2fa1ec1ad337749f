#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "encode_made.hpp"
#include "otel_straggler/span_sender.hpp"

using namespace otel_straggler;

namespace {

// A request for so many runs; its first byte distinguishes it from others.
encoding::Request request(std::uint8_t name, std::uint64_t runs, std::size_t bytes = 100) {
  proto::Bytes body(bytes, name);
  return {std::move(body), 0, 1, runs};
}

// Answers as configured, and remembers what came.
struct Server {
  std::vector<Answer> answers;
  std::string came;

  SpanSender::Post post() {
    return [this](std::string_view body, std::int64_t) {
      came.push_back(body[0]);
      const std::size_t at = came.size() - 1;
      return at < answers.size() ? answers[at] : answers.back();
    };
  }
};

Answer answered(int status, std::string body = "") {
  Answer answer;
  answer.status = status;
  answer.body = std::move(body);
  return answer;
}

Answer unreachable() {
  Answer answer;
  answer.error = "connect: refused";
  return answer;
}

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 2;

}  // namespace

TEST_CASE("requests are sent in order, each once") {
  SpanSender sender(1'000'000);
  Server server{{answered(200)}, ""};
  for (const std::uint8_t name : {'a', 'b', 'c'}) sender.put(request(name, 1));
  sender.send(kNever, kSecondNs, server.post());
  CHECK(server.came == "abc");
  CHECK(sender.queued_requests() == 0);
  CHECK(sender.queued_bytes() == 0);
  CHECK(sender.sent().size() == 3);
}

TEST_CASE("a full queue gives up its oldest request, and counts its spans") {
  SpanSender sender(250);
  sender.put(request('a', 5));
  sender.put(request('b', 7));
  sender.put(request('c', 9));
  CHECK(sender.losses().queue_full == 5);
  CHECK(sender.queued_bytes() == 200);
  sender.put(request('d', 11, 1'000));  // larger than the budget: nothing is left
  CHECK(sender.losses().queue_full == 5 + 7 + 9 + 11);
  CHECK(sender.queued_bytes() == 0);
}

TEST_CASE("a server that does not take it now gets it again, but not at once") {
  SpanSender sender(1'000'000);
  Server server{{answered(503), answered(200)}, ""};
  sender.put(request('a', 1));
  sender.put(request('b', 1));
  sender.send(kNever, kSecondNs, server.post());
  sender.send(kNever, kSecondNs, server.post());
  CHECK(server.came == "a");
  sender.mark_reachable();  // it was reached: it asked for patience and gets it
  sender.send(kNever, kSecondNs, server.post());
  CHECK(server.came == "a");
  sender.send_before(kNever, kSecondNs, server.post());
  CHECK(server.came == "aab");
  const std::vector<Note> notes = sender.drain_notes();
  REQUIRE(notes.size() == 2);
  CHECK(notes[0].kind == Note::Kind::kKept);
  CHECK(notes[0].status == 503);
  CHECK(notes[1].kind == Note::Kind::kTakesAgain);
}

TEST_CASE("where no server was found, another request's success ends the wait") {
  SpanSender sender(1'000'000);
  Server server{{unreachable(), answered(200)}, ""};
  sender.put(request('a', 1));
  sender.send(kNever, kSecondNs, server.post());
  sender.send(kNever, kSecondNs, server.post());
  CHECK(server.came == "a");
  sender.mark_reachable();
  sender.send(kNever, kSecondNs, server.post());
  CHECK(server.came == "aa");
}

TEST_CASE("what is refused for good is counted and said once") {
  SpanSender sender(1'000'000);
  Server server{{answered(400)}, ""};
  sender.put(request('a', 2));
  sender.put(request('b', 3));
  sender.send(kNever, kSecondNs, server.post());
  CHECK(server.came == "ab");
  CHECK(sender.losses().rejected == 5);
  CHECK(sender.drain_notes().size() == 1);
}

TEST_CASE("a note has the server's own words") {
  proto::Bytes refusal;
  proto::append_tag(refusal, 1, proto::kVarint);
  proto::append_varint(refusal, 8);
  proto::append_message(refusal, 2, {'2', ' ', 'r', 'u', 'n', 's', '\n'});
  const std::string body(proto::view_of(refusal));
  CHECK(message_of(body) == "2 runs?");
  CHECK(message_of("") == "");
  CHECK(message_of("<html>busy</html>") == "");
  CHECK(message_of(body.substr(0, body.size() - 1)) == "");
  SpanSender sender(1'000'000);
  Server server{{answered(429, body)}, ""};
  sender.put(request('a', 1));
  sender.send(kNever, kSecondNs, server.post());
  const std::vector<Note> notes = sender.drain_notes();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].words == "2 runs?");
}

TEST_CASE("rejected spans of an answer are counted, and no more than were sent") {
  proto::Bytes partial;
  proto::append_tag(partial, 1, proto::kVarint);
  proto::append_varint(partial, 2);
  proto::Bytes whole;
  proto::append_message(whole, 1, partial);
  const std::string body(proto::view_of(whole));
  CHECK(rejected_spans(body) == 2);
  CHECK(rejected_spans("") == 0);
  CHECK(rejected_spans("<html>fine</html>") == 0);
  CHECK(rejected_spans(body.substr(0, body.size() - 1)) == 0);
  SpanSender sender(1'000'000);
  Server server{{answered(200, body)}, ""};
  sender.put(request('a', 5));
  sender.put(request('b', 1));
  sender.send(kNever, kSecondNs, server.post());
  CHECK(sender.losses().rejected == 3);
}

TEST_CASE("what waits at the end is counted and said") {
  SpanSender sender(1'000'000);
  Server server{{unreachable()}, ""};
  sender.put(request('a', 5));
  sender.put(request('b', 7));
  sender.send_before(kNever, kSecondNs, server.post());
  sender.give_up();
  CHECK(sender.losses().process_ended == 12);
  CHECK(sender.queued_bytes() == 0);
  const std::vector<Note> notes = sender.drain_notes();
  REQUIRE(notes.size() == 2);
  CHECK(notes[1].kind == Note::Kind::kGivenUp);
  CHECK(notes[1].status == 12);
}

TEST_CASE("waits double up to half a minute, with jitter, and are never shorter than asked for") {
  CHECK(retry_delay_s(1, 0.0, 0.5) == 0.75);
  CHECK(retry_delay_s(2, 0.0, 0.5) == 1.5);
  CHECK(retry_delay_s(3, 0.0, 0.0) == 2.0);
  CHECK(retry_delay_s(99, 0.0, 0.5) == 22.5);
  CHECK(retry_delay_s(1, 10.0, 0.5) == 10.0);
}
