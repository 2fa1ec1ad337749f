// Records to OTLP: bytes of ExportTraceServiceRequest, as otel_straggler/client/python_packing.py
// makes them of tuples. No Python in it: any thread may encode, one at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "encode_names.hpp"
#include "fold.hpp"
#include "fold_rule.hpp"
#include "ids.hpp"
#include "proto_write.hpp"
#include "record.hpp"
#include "encode_template.hpp"
#include "trace_requests.hpp"

namespace otel_straggler::encoding {

// Records, by what became of them, since the encoder was made.
struct EncodeCounts {
  std::uint64_t spans = 0;
  std::uint64_t folded_runs = 0;    // of them in spans for several
  std::uint64_t bad_records = 0;    // of a section or phase that has no name
  std::uint64_t other_epochs = 0;   // of an epoch that was never added
};

class SpanEncoder {
 public:
  // Epochs whose runs are still numbered; a step counter that goes back begins a new one.
  static constexpr std::size_t kMaxEpochs = 64;

  // Args: seed of span ids; spans_per_s above which hot sections are folded, 0: never.
  SpanEncoder(Vocabulary words, Identity who, std::uint64_t seed, std::uint64_t spans_per_s)
      : words_(std::move(words)),
        traces_(std::move(who)),
        seed_(seed),
        rule_(spans_per_s),
        writer_(words_) {}

  // False if the number is too large to be one. A new name for a number takes effect at once.
  bool add_section(std::uint32_t id, std::string name, std::string kind) {
    templates_.clear();
    return names_.add_section(id, std::move(name), std::move(kind));
  }

  bool add_phase(std::uint32_t id, std::string text) {
    templates_.clear();
    return names_.add_phase(id, std::move(text));
  }

  // `resource` is the message Resource; setting it again replaces it. The lowest number goes where
  // there are too many.
  void add_epoch(std::uint32_t id, proto::Bytes resource) {
    epochs_[id].resource = std::move(resource);
    if (epochs_.size() > kMaxEpochs) epochs_.erase(epochs_.begin());
  }

  const EncodeCounts& counts() const { return counts_; }
  const Names& names() const { return names_; }

  // Runs folded so far, by number of the name.
  const std::vector<std::uint64_t>& folded_by_name() const { return folded_by_name_; }

  // Appends the requests of a block of records, in their order.
  //
  // Args: offset_ns: Unix time minus the clock of the records. one_in: keep one step in so many.
  void encode(const std::uint8_t* block, std::size_t records, std::int64_t offset_ns,
              std::uint64_t one_in, std::vector<Request>& out) {
    offset_ns_ = static_cast<std::uint64_t>(offset_ns);
    writer_.drop();  // of a call that ran out of memory
    tail_.clear();
    choose(block, records, std::max<std::uint64_t>(one_in, 1));
    rule_.decide(names_);
    folds_.begin(0);
    if (rule_.folds_any()) group();
    for (std::size_t place = 0; place < chosen_.size(); ++place) {
      Fold* const fold = folds_.at(place);
      if (fold == nullptr) {
        append_run(chosen_[place], out);
      } else if (fold->last_place == place) {
        if (fold->runs == 1) append_run(chosen_[place], out);
        if (fold->runs > 1) append_fold(*fold, chosen_[place].epoch, out);
      }
    }
    writer_.finish(out);
  }

  // Gives back the memory of requests that have been sent or copied.
  void recycle(std::vector<Request>& requests) { writer_.recycle(requests); }

 private:
  struct Epoch {
    proto::Bytes resource;
    std::vector<std::uint64_t> runs;  // by number of the name
  };
  struct Chosen {
    const std::uint8_t* bytes;
    Epoch* epoch;
    bool is_scored_step;
  };

  // --- which records are sent ------------------------------------------------------------------

  void choose(const std::uint8_t* block, std::size_t records, std::uint64_t one_in) {
    chosen_.clear();
    chosen_.reserve(records);
    std::uint32_t epoch_id = 0;
    Epoch* epoch = nullptr;
    for (std::size_t at = 0; at < records; ++at) {
      const std::uint8_t* const bytes = block + at * sizeof(Record);
      const Record run = read(bytes);
      mark_step(run);
      if (epoch == nullptr || run.epoch != epoch_id) {
        const auto found = epochs_.find(run.epoch);
        epoch = found == epochs_.end() ? nullptr : &found->second;
        epoch_id = run.epoch;
      }
      if (epoch == nullptr) {
        ++counts_.other_epochs;
      } else if (!is_named(run)) {
        ++counts_.bad_records;
      } else if (one_in == 1 || is_sampled(traces_.of(run.step, unix_start(run)), one_in)) {
        chosen_.push_back({bytes, epoch, is_scored_step_});
        if (rule_.is_on() && may_fold(run)) rule_.count(name_of(run), run.step_span, run.end_ns);
      }
    }
  }

  // A step in which no section ended is scored as one section, unless it is the first such step: a
  // loop may be marked from its second step on. Sections come before their step.
  void mark_step(const Record& run) {
    is_scored_step_ = false;
    if ((run.flags & kStepSpan) == 0) {
      if (run.parent_section == kNoSection) {
        sectioned_step_ = std::max(sectioned_step_, run.step_span);
      }
    } else {
      const bool is_whole = run.span > sectioned_step_;
      is_scored_step_ = is_whole && was_whole_;
      was_whole_ = is_whole;
    }
  }

  bool is_named(const Record& run) const {
    const bool is_step = (run.flags & kStepSpan) != 0;
    return (is_step || names_.has_section(run.section)) &&
           (run.parent_section == kNoSection || names_.has_section(run.parent_section)) &&
           names_.has_phase(run.phase);
  }

  // --- folding ---------------------------------------------------------------------------------

  static bool may_fold(const Record& run) {
    return (run.flags & (kFailed | kStepSpan)) == 0 && length_of(run) < kLongestFolded;
  }

  void group() {
    folds_.begin(chosen_.size());
    for (std::size_t place = 0; place < chosen_.size(); ++place) {
      const Record run = read(chosen_[place].bytes);
      if (may_fold(run) && rule_.folds(name_of(run))) folds_.add(place, run, key_of(run));
    }
  }

  FoldKey key_of(const Record& run) const {
    FoldKey key{};
    key.epoch = run.epoch;
    key.section = run.section;
    key.around = run.parent_section == kNoSection ? kNoSection
                                                  : names_.section(run.parent_section).name_number;
    key.phase = run.phase;
    // Runs that waited and runs that did not are folded together.
    key.fields = (run.tokens >= 0 ? bit(kTokensNumber) : 0U) | (gpu_bits(run) & ~kHasWaited);
    key.step_span = run.step_span;
    key.trace = run.step != kNoStep ? run.step : window_of(unix_start(run));
    return key;
  }

  void append_fold(Fold& fold, Epoch* epoch, std::vector<Request>& out) {
    const Record& run = fold.first;
    SpanShape shape = shape_of(run);
    shape.fields &= ~(bit(kMicrobatchNumber) | kHasParent);
    shape.fields |= bit(kFoldCountNumber) | bit(kFoldSumNumber) | bit(kFoldMinNumber) |
                  bit(kFoldMaxNumber) | (run.step_span != kNoSpan ? kHasParent : 0U) |
                  (fold.gpu.waited_ns > 0 ? kHasWaited : 0U);
    SpanValues span = values_of(run, epoch, fold.runs);
    span.parent = span_id(seed_, run.step_span);
    span.end_ns = fold.end_ns + offset_ns_;
    span.numbers[kTokensNumber] = fold.tokens;
    put_gpu(span, fold.gpu, fold.gpu.waited_ns);
    span.numbers[kFoldCountNumber] = fold.runs;
    span.numbers[kFoldSumNumber] = fold.sum_ns;
    span.numbers[kFoldMinNumber] = fold.min_ns;
    span.numbers[kFoldMaxNumber] = fold.max_ns;
    write_sketch(fold);
    append(shape, span, fold.runs, epoch, out);
    tail_.clear();
    counts_.folded_runs += fold.runs;
    const std::uint32_t name = name_of(run);
    if (name >= folded_by_name_.size()) folded_by_name_.resize(name + 1U);
    folded_by_name_[name] += fold.runs;
  }

  void write_sketch(Fold& fold) {
    proto::Bytes sketch;
    append_sketch(sketch, fold.buckets);
    proto::Bytes value;
    proto::append_message(value, 7, sketch);
    proto::Bytes pair;
    proto::append_text(pair, 1, words_[kFoldSketchWord]);
    proto::append_message(pair, 2, value);
    proto::append_message(tail_, 9, pair);
  }

  // --- one span --------------------------------------------------------------------------------

  void append_run(const Chosen& chosen, std::vector<Request>& out) {
    const Record run = read(chosen.bytes);
    SpanShape shape = shape_of(run);
    if (chosen.is_scored_step) shape.fields |= kIsScoredStep;
    SpanValues span = values_of(run, chosen.epoch, 1);
    if ((shape.fields & kIsStep) != 0) {
      const SpanId root = root_span_id(span.trace);
      std::memcpy(&span.parent, root.data(), root.size());
      span.parent = little_endian(span.parent);
    } else if ((shape.fields & kHasParent) != 0) {
      span.parent = span_id(seed_, parent_of(run));
    }
    if (run.gpu.state != GpuState::kOff) {
      put_gpu(span, run.gpu, static_cast<std::uint64_t>(waited_ns_of(run.gpu)));
    }
    append(shape, span, 1, chosen.epoch, out);
  }

  SpanShape shape_of(const Record& run) const {
    const bool is_step = (run.flags & kStepSpan) != 0;
    SpanShape shape;
    shape.section = is_step ? 0 : run.section;
    shape.parent_section = is_step ? kNoSection : run.parent_section;
    shape.phase = run.phase;
    shape.fields = (run.step != kNoStep ? bit(kStepNumber) : 0U) |
                 (run.microbatch >= 0 ? bit(kMicrobatchNumber) : 0U) |
                 (run.tokens >= 0 ? bit(kTokensNumber) : 0U) | gpu_bits(run) |
                 ((run.flags & kFailed) != 0 ? kIsError : 0U) |
                 (is_step ? kIsStep | kHasParent : bit(kSeqNumber)) |
                 (parent_of(run) != kNoSpan ? kHasParent : 0U);
    return shape;
  }

  // The run around it; if that is folded, and so has no span, the step.
  std::uint64_t parent_of(const Record& run) const {
    if (run.parent == kNoSpan) return run.step_span;
    const bool is_folded = run.parent_section != kNoSection && rule_.folds_any() &&
                           rule_.folds(names_.section(run.parent_section).name_number);
    return is_folded ? run.step_span : run.parent;
  }

  static std::uint32_t gpu_bits(const Record& run) {
    if (run.gpu.state == GpuState::kOff) return 0;
    const std::uint32_t waited = waited_ns_of(run.gpu) > 0 ? kHasWaited : 0U;
    const bool is_kernel_timed = run.gpu.state == GpuState::kTimed;
    if (!is_kernel_timed && run.gpu.state != GpuState::kTimedByEvents) return waited;
    if (!is_kernel_timed) return kIsEventTimed | bit(kBusyTimeNumber) | waited;
    return kIsKernelTimed | bit(kKernelCountNumber) |
           (run.gpu.kernel_time_ns >= 0 ? bit(kKernelTimeNumber) : 0U) |
           (run.gpu.busy_time_ns >= 0 ? bit(kBusyTimeNumber) : 0U) |
           (run.gpu.nccl_time_ns >= 0 ? bit(kNcclTimeNumber) : 0U);
  }

  // With the numbers of `runs` runs taken from those of the section.
  SpanValues values_of(const Record& run, Epoch* epoch, std::uint64_t runs) {
    SpanValues span;
    span.trace = traces_.of(run.step, unix_start(run));
    span.span = span_id(seed_, run.span);
    span.start_ns = static_cast<std::uint64_t>(run.start_ns) + offset_ns_;
    span.end_ns = span.start_ns + length_of(run);
    span.numbers[kStepNumber] = static_cast<std::uint64_t>(run.step);
    span.numbers[kMicrobatchNumber] = static_cast<std::uint64_t>(run.microbatch);
    span.numbers[kTokensNumber] = static_cast<std::uint64_t>(run.tokens);
    if ((run.flags & kStepSpan) == 0) {
      const std::uint32_t name = name_of(run);
      if (name >= epoch->runs.size()) epoch->runs.resize(name + 1U);
      span.numbers[kSeqNumber] = epoch->runs[name];
      epoch->runs[name] += runs;
    }
    return span;
  }

  template <typename Gpu>
  static void put_gpu(SpanValues& span, const Gpu& gpu, std::uint64_t waited_ns) {
    span.numbers[kWaitTimeNumber] = waited_ns;
    span.numbers[kKernelTimeNumber] = static_cast<std::uint64_t>(gpu.kernel_time_ns);
    span.numbers[kBusyTimeNumber] = static_cast<std::uint64_t>(gpu.busy_time_ns);
    span.numbers[kNcclTimeNumber] = static_cast<std::uint64_t>(gpu.nccl_time_ns);
    span.numbers[kKernelCountNumber] = gpu.kernel_count;
  }

  void append(const SpanShape& shape, const SpanValues& span, std::uint64_t runs, Epoch* epoch,
              std::vector<Request>& out) {
    SpanTemplate& layout = templates_.of(shape, names_, words_);
    const std::size_t size = layout.fit(span, names_, words_) + tail_.size();
    layout.append(writer_.room_for(epoch->resource, size, runs, out), span, tail_);
    ++counts_.spans;
  }

  // --- records ---------------------------------------------------------------------------------

  static Record read(const std::uint8_t* bytes) {
    Record run;
    std::memcpy(&run, bytes, sizeof(run));
    return run;
  }

  std::uint32_t name_of(const Record& run) const { return names_.section(run.section).name_number; }

  std::int64_t unix_start(const Record& run) const {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(run.start_ns) + offset_ns_);
  }

  static std::uint64_t little_endian(std::uint64_t value) {
    std::array<std::uint8_t, 8> bytes{};
    std::memcpy(bytes.data(), &value, bytes.size());
    std::uint64_t read = 0;
    for (unsigned place = 0; place < 8; ++place) {
      read |= static_cast<std::uint64_t>(bytes[place]) << (8 * place);
    }
    return read;
  }

  Vocabulary words_;
  Names names_;
  Traces traces_;
  std::uint64_t seed_;
  std::uint64_t offset_ns_ = 0;
  std::uint64_t sectioned_step_ = kNoSpan;  // the newest step in which a section ended
  bool was_whole_ = false;                  // no section ended in the step before
  bool is_scored_step_ = false;
  FoldRule rule_;
  Folds folds_;
  Templates templates_;
  RequestWriter writer_;
  std::map<std::uint32_t, Epoch> epochs_;
  std::vector<Chosen> chosen_;
  std::vector<std::uint64_t> folded_by_name_;
  proto::Bytes tail_;
  EncodeCounts counts_;
};

}  // namespace otel_straggler::encoding
