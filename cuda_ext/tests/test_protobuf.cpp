#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "otel_straggler/intern.hpp"
#include "otel_straggler/protobuf.hpp"
#include "otel_straggler/utf8.hpp"
#include "requests.hpp"

using namespace otel_straggler;
using requests::bytes_of;

namespace {

// Numbers of the fields that are read; "!" at the end: malformed.
std::string fields_of(const std::string& message) {
  std::string numbers;
  Field field;
  FieldReader reader(bytes_of(message));
  while (reader.next(field)) numbers += std::to_string(field.number) + " ";
  return numbers + (reader.is_malformed() ? "!" : "");
}

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text.push_back(static_cast<char>(value));
  return text;
}

}  // namespace

TEST_CASE("fields of all types are read") {
  const std::string message = requests::number(1, 300) + requests::fixed64(2, 7) +
                              requests::content(3, "abc") + bytes({0x25, 1, 0, 0, 0});
  Field field;
  FieldReader reader(bytes_of(message));
  REQUIRE(reader.next(field));
  CHECK((field.is(1, WireType::kVarint) && field.value == 300));
  REQUIRE(reader.next(field));
  CHECK((field.is(2, WireType::kFixed64) && field.value == 7));
  REQUIRE(reader.next(field));
  CHECK((field.is(3, WireType::kLength) && field.content.size == 3));
  REQUIRE(reader.next(field));
  CHECK((field.is(4, WireType::kFixed32) && field.value == 1));
  CHECK_FALSE(reader.next(field));
  CHECK_FALSE(reader.is_malformed());
}

TEST_CASE("a group is skipped, and one that does not end is malformed") {
  const std::string inner = requests::number(1, 1) + requests::content(2, "x");
  CHECK(fields_of(bytes({0x0B}) + inner + bytes({0x0C}) + requests::number(5, 1)) == "5 ");
  CHECK(fields_of(bytes({0x0B}) + inner) == "!");
  CHECK(fields_of(bytes({0x0B}) + inner + bytes({0x14})) == "!");
  CHECK(fields_of(bytes({0x0C})) == "!");
}

TEST_CASE("groups in groups are followed to a limit") {
  CHECK(fields_of(std::string(30, '\x0B') + std::string(30, '\x0C')) == "");
  CHECK(fields_of(std::string(100'000, '\x0B') + std::string(100'000, '\x0C')) == "!");
}

TEST_CASE("a varint may be padded to ten bytes, a tag to five") {
  const std::string zeros = std::string(8, '\x80') + bytes({0});
  CHECK(fields_of(bytes({0x08, 0x81}) + zeros) == "1 ");
  CHECK(fields_of(bytes({0x08, 0x81, 0x80}) + zeros) == "!");
  CHECK(fields_of(bytes({0x88, 0x80, 0x80, 0x80, 0x00, 1})) == "1 ");
  CHECK(fields_of(bytes({0x88, 0x80, 0x80, 0x80, 0x80, 0x00, 1})) == "!");
}

TEST_CASE("what would reach past the end is malformed") {
  const std::string message = requests::fixed64(2, 7) + requests::content(3, "abc");
  for (std::size_t size = 1; size < message.size(); ++size) {
    if (size != 9) CHECK(fields_of(message.substr(0, size)).back() == '!');
  }
  CHECK(fields_of(bytes({0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F})) == "!");
  CHECK(fields_of(bytes({0x00, 0x00})) == "!");  // no field has the number 0
}

TEST_CASE("UTF-8 has no overlong forms, no surrogates and an end") {
  for (const char* good : {"", "abc", "gr\xC3\xB6\xC3\x9F, and on", "\xE2\x82\xAC", "\xED\x9F\xBF",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    CHECK(is_utf8(bytes_of(good)));
  }
  for (const char* bad : {"\x80", "\xC3", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                          "\xE2\x82", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                          "\xF0\x90\x80", "seven by\xFF"}) {
    const std::string text(bad);
    CHECK_FALSE(is_utf8(bytes_of(text)));
  }
}

TEST_CASE("the same bytes get the same number, as long as there is room") {
  InternTable table(1000, 6000);
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < 1000; ++i) {
      CHECK(table.number_of(bytes_of(std::to_string(i))) == i);
    }
  }
  CHECK(table.number_of(bytes_of("1000")) == InternTable::kFull);
  CHECK(table.number_of(bytes_of("7")) == 7);
  InternTable small(1000, 6);
  CHECK(small.number_of({}) == 0);
  CHECK(small.number_of(bytes_of("123456")) == 1);
  CHECK(small.number_of(bytes_of("7")) == InternTable::kFull);
}
