// Interface of a collector: settings, state, and kernels with their text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "otel_straggler/clocks.hpp"
#include "otel_straggler/cupti/kernel_stats.hpp"
#include "otel_straggler/cupti/pipeline.hpp"
#include "otel_straggler/cupti/proof.hpp"
#include "otel_straggler/cupti/sampling.hpp"

namespace otel_straggler::cupti {

struct CollectorSettings {
  bool prefers_launches = false;  // Way::kLaunches: takes the one subscriber that there may be
  bool times_memory = false;      // copies and sets too
  bool times_whole_graphs = false;  // one record a graph launch, instead of one a kernel of it
  SamplingRate rate;
  // CUPTI gives no buffer back while a kernel in it runs, and in training one always runs: what is
  // in a buffer waits until it is full. So buffers are small, 1,200 kernels each; 64 MiB together.
  std::size_t buffer_bytes = std::size_t{1} << 18;
  std::size_t max_buffers = 256;
  std::int64_t poll_ns = kSecondNs / 10;  // at buffers that are full
  std::int64_t flush_ns = kSecondNs / 2;
};

// State, for deciding whether tracing continues.
struct CollectorState {
  bool is_tracing = false;
  Way way = Way::kMarks;
  ProofState proof = ProofState::kOpen;
  std::uint64_t windows = 0;  // times that kernel records were switched on
  PipelineCounts counts;
  std::uint64_t foreign_buffers = 0;   // of another client, given to us
  std::uint64_t garbage_buffers = 0;   // that stopped making sense
  std::uint64_t declined_buffers = 0;  // asked for while all were out
  std::uint64_t boundaries_elsewhere = 0;  // marks only: sections in threads that marks cannot see
  std::uint64_t marks_lost = 0;
  std::uint64_t silent_flushes = 0;  // in a row, although there were launches or marks
  std::size_t buffers_out = 0;
  std::size_t buffers_touched = 0;
  std::size_t kernel_names = 0;
  std::size_t cells = 0;
  std::size_t cell_bytes = 0;
  bool is_invalid_too_often = false;
};

// A cell with its words; the name is readable.
struct KernelSummary {
  std::string name;
  KernelClass kernel_class;
  KernelCell cell;
};

}  // namespace otel_straggler::cupti
