// Encoded spans, put together as requests that every receiver takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "encode_names.hpp"
#include "proto_write.hpp"

namespace otel_straggler::encoding {

inline constexpr std::uint32_t kMaxSpans = 512;
inline constexpr std::size_t kMaxRowBytes = 1'000'000;

// An encoded ExportTraceServiceRequest, how many spans it holds, and how many executions they
// cover: a folded span covers many. A lost request loses them all.
class Request {
 public:
  Request(proto::Bytes bytes, std::size_t begin, std::uint32_t spans, std::uint64_t runs)
      : bytes_(std::move(bytes)), begin_(begin), spans_(spans), runs_(runs) {}

  const std::uint8_t* data() const { return bytes_.data() + begin_; }
  std::size_t size() const { return bytes_.size() - begin_; }
  std::uint32_t spans() const { return spans_; }
  std::uint64_t runs() const { return runs_; }

  // Its memory, for another one.
  proto::Bytes release() && { return std::move(bytes_); }

 private:
  proto::Bytes bytes_;
  std::size_t begin_;  // room in front that the head did not need
  std::uint32_t spans_;
  std::uint64_t runs_;
};

// Cuts a stream of spans into requests of one resource each, kMaxSpans and kMaxRowBytes at most.
// Spans are written where they stay; what belongs in front of them is put there at the end.
class RequestWriter {
 public:
  explicit RequestWriter(const Vocabulary& words) {
    proto::Bytes scope;
    proto::append_text(scope, 1, words[kScopeNameWord]);
    proto::append_text(scope, 2, words[kScopeVersionWord]);
    proto::append_message(scope_, 1, scope);
    proto::append_text(schema_, 3, words[kSchemaUrlWord]);
  }

  // Where the next span, of `row_bytes` and for so many runs, may be appended. `resource` must live
  // until finish().
  proto::Bytes& room_for(const proto::Bytes& resource, std::size_t row_bytes, std::uint64_t runs,
                         std::vector<Request>& out) {
    const bool is_full = spans_ == kMaxSpans || rows_ + row_bytes > kMaxRowBytes;
    if (spans_ > 0 && (is_full || &resource != resource_)) finish(out);
    if (spans_ == 0) begin(resource, row_bytes);
    ++spans_;
    runs_ += runs;
    rows_ += row_bytes;
    return bytes_;
  }

  void finish(std::vector<Request>& out) {
    if (spans_ == 0) return;
    const std::size_t rows = bytes_.size() - room_;
    const std::size_t scope_spans = scope_.size() + rows + schema_.size();
    proto::Bytes inner;
    proto::append_message(inner, 1, *resource_);
    proto::append_tag(inner, 2, proto::kLength);
    proto::append_varint(inner, scope_spans);
    proto::Bytes head;
    proto::append_tag(head, 1, proto::kLength);
    proto::append_varint(head, inner.size() + scope_spans + schema_.size());
    proto::append_bytes(head, proto::view_of(inner));
    proto::append_bytes(head, proto::view_of(scope_));
    std::copy(head.begin(), head.end(),
              bytes_.begin() + static_cast<std::ptrdiff_t>(room_ - head.size()));
    proto::append_bytes(bytes_, proto::view_of(schema_));  // of the scope
    proto::append_bytes(bytes_, proto::view_of(schema_));  // of the resource
    usual_size_ = bytes_.size();
    out.emplace_back(std::move(bytes_), room_ - head.size(), spans_, runs_);
    drop();
  }

  // Takes the memory of requests that are no longer needed: fresh pages cost as much as encoding.
  void recycle(std::vector<Request>& requests) {
    for (Request& request : requests) {
      if (spare_.size() < kMaxSpare) spare_.push_back(std::move(request).release());
    }
    requests.clear();
  }

  // Forgets what is not finished.
  void drop() {
    bytes_ = {};
    spans_ = 0;
    runs_ = 0;
    rows_ = 0;
    resource_ = nullptr;
  }

 private:
  static constexpr std::size_t kMaxHead = 64;  // tags and lengths, generously
  static constexpr std::size_t kMaxSpare = 16;

  void begin(const proto::Bytes& resource, std::size_t row_bytes) {
    resource_ = &resource;
    room_ = resource.size() + scope_.size() + kMaxHead;
    if (!spare_.empty()) {
      bytes_ = std::move(spare_.back());
      spare_.pop_back();
      bytes_.clear();
    }
    bytes_.reserve(std::max(usual_size_ + usual_size_ / 16, room_ + row_bytes));
    bytes_.resize(room_);
  }

  proto::Bytes scope_;
  proto::Bytes schema_;
  proto::Bytes bytes_;
  std::vector<proto::Bytes> spare_;
  const proto::Bytes* resource_ = nullptr;
  std::size_t room_ = 0;
  std::size_t rows_ = 0;
  std::size_t usual_size_ = 0;
  std::uint32_t spans_ = 0;
  std::uint64_t runs_ = 0;
};

}  // namespace otel_straggler::encoding
