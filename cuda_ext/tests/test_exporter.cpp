#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "encode_made.hpp"
#include "loopback.hpp"
#include "made_timer.hpp"
#include "otel_straggler/exporter.hpp"

using namespace otel_straggler;

namespace {

// A recorder, an exporter and the server that it sends to.
struct Made {
  std::mutex mutex;
  std::vector<std::string> traces;
  std::vector<std::string> metrics;
  std::string answer = made::ok();
  made::Server server;
  Block block;
  std::unique_ptr<Recorder> recorder;
  Handoff handoff;
  GpuTimers gpu_timers;
  std::shared_ptr<Exporter> exporter;

  Made()
      : server([this](const std::string& path, const std::string& body) {
          const std::lock_guard<std::mutex> lock(mutex);
          (path == "/traces" ? traces : metrics).push_back(body);
          return answer;
        }) {
    REQUIRE(block.open() == 0);
    recorder = std::make_unique<Recorder>(block);
    recorder->enable(0, {}, monotonic_ns());
  }

  ~Made() {
    if (exporter) CHECK(exporter->stop(in(20)));
  }

  static std::int64_t in(double seconds) {
    return monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
  }

  void start(ExporterSettings settings = {}) {
    settings.traces = server.target("/traces");
    settings.metrics = server.target("/metrics");
    settings.flush_ns = 20'000'000;
    HeartbeatVocabulary words;
    for (std::size_t at = kSectionKey; at < kHeartbeatWords; ++at) {
      words[at] = "word " + std::to_string(at);
    }
    auto encoder = std::make_shared<SharedEncoder>(made::words(), Identity{"run", 0, "", 3},
                                                   7, 0);
    encoder->encoder.add_section(0, "step", "other");
    encoder->encoder.add_section(1, "forward", "compute");
    encoder->encoder.add_epoch(0, {});
    exporter = std::make_shared<Exporter>(settings, words, encoder, *recorder, handoff,
                                          gpu_timers);
    exporter->set_resource(0, "resource");
    handoff.set_listening(Reader::kExporter, true);
    exporter->start();
  }

  void run(int runs) {
    for (int at = 0; at < runs; ++at) {
      REQUIRE(recorder->keep(made::run(static_cast<std::uint64_t>(at) + 1, 10, 20)));
    }
  }

  // Runs that begin and end now.
  void run_now(int runs) {
    for (int at = 0; at < runs; ++at) {
      Record record = made::run(++last_span, monotonic_ns(), 0);
      record.end_ns = monotonic_ns();
      while (!recorder->keep(record)) std::this_thread::yield();
    }
  }
  std::uint64_t last_span = 0;

  std::uint64_t lost(HeartbeatWord reason) {
    const CountsByName dropped = exporter->state().dropped;
    const auto found = dropped.find("word " + std::to_string(reason));
    return found == dropped.end() ? 0 : found->second;
  }

  bool flush(const std::string& outcome = "", double seconds = 20) {
    const std::uint64_t number = exporter->begin_flush(in(seconds), outcome);
    return exporter->wait(number, in(seconds));
  }

  std::size_t spans_sent() {
    const std::lock_guard<std::mutex> lock(mutex);
    std::size_t spans = 0;
    for (const std::string& body : traces) {
      for (std::size_t at = body.find("forward"); at != std::string::npos;
           at = body.find("forward", at + 1)) {
        ++spans;
      }
    }
    return spans;
  }
};

bool has(const std::vector<std::string>& bodies, const std::string& text) {
  for (const std::string& body : bodies) {
    if (body.find(text) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("what is recorded is sent, all of it, and the end is said once") {
  Made made;
  made.start();
  made.run(3'000);
  CHECK(made.flush());
  // The name stands in a span twice: as its name and as an attribute.
  CHECK(made.spans_sent() == 2 * 3'000);
  CHECK(made.exporter->state().recorded == 3'000);
  CHECK(made.flush("failed"));
  CHECK(made.flush("ok"));
  const std::lock_guard<std::mutex> lock(made.mutex);
  CHECK(has(made.metrics, "failed"));
  CHECK_FALSE(has(made.metrics, "ok"));
}

TEST_CASE("without a flush it sends by itself, and says that it lives") {
  Made made;
  ExporterSettings settings;
  settings.heartbeat_ns = 20'000'000;
  made.start(settings);
  made.run(1);
  for (int poll = 0; poll < 2'000; ++poll) {
    {
      const std::lock_guard<std::mutex> lock(made.mutex);
      if (made.traces.size() == 1 && made.metrics.size() > 3) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(made.spans_sent() == 2);
  const std::lock_guard<std::mutex> lock(made.mutex);
  CHECK(made.metrics.size() > 3);
  CHECK(made.block.header().alive_ns.load() > 0);
}

TEST_CASE("only a sample goes to who does not say that it scores; then all") {
  Made made;
  ExporterSettings settings;
  settings.is_trusted = false;
  settings.sample_steps = 1'000'000;
  made.start(settings);
  made.run(10);
  CHECK(made.flush());
  CHECK(made.spans_sent() == 0);
  CHECK_FALSE(made.exporter->state().is_scorer);
  {
    const std::lock_guard<std::mutex> lock(made.mutex);
    made.answer = made::ok("", "X-Scorer: 1\r\n");
  }
  CHECK(made.flush("ok"));  // the answer to this heartbeat says it
  CHECK(made.exporter->state().is_scorer);
  made.run(10);
  CHECK(made.flush());
  CHECK(made.spans_sent() == 2 * 10);
}

TEST_CASE("the queue for a server that is away stays within its bytes, and losses are reported") {
  Made made;
  ExporterSettings settings;
  settings.queue_bytes = 200'000;
  made.answer = made::status(503, "Retry-After: 30\r\n");
  made.start(settings);
  for (int round = 0; round < 20; ++round) {
    made.run(1'000);
    CHECK(made.flush());
  }
  const ExporterState state = made.exporter->state();
  CHECK(state.queued_bytes <= settings.queue_bytes);
  CHECK(state.queued_requests > 0);
  const std::uint64_t lost = state.dropped.at("word " + std::to_string(kQueueFullReason));
  CHECK(lost > 0);
  CHECK_FALSE(made.exporter->drain_notes().empty());
  CHECK(made.exporter->drain_notes().empty());
  {
    const std::lock_guard<std::mutex> lock(made.mutex);
    made.traces.clear();
    made.answer = made::ok();
  }
  CHECK(made.flush());
  CHECK(made.spans_sent() == 2 * (20'000 - lost));
}

TEST_CASE("runs of a section that has no name are lost, and counted") {
  Made made;
  made.start();
  Record nameless = made::run(1, 10, 20);
  nameless.section = 77;
  REQUIRE(made.recorder->keep(nameless));
  CHECK(made.flush());
  CHECK(made.exporter->state().dropped.at("word " + std::to_string(kEncodeErrorReason)) == 1);
}

TEST_CASE("a stop does not wait for a server that never answers") {
  std::mutex silence;
  silence.lock();
  {
    Made made;
    made::Server silent([&silence](const std::string&, const std::string&) {
      const std::lock_guard<std::mutex> lock(silence);
      return made::ok();
    });
    ExporterSettings settings;
    settings.sends_metrics = false;
    made.start(settings);
    auto encoder = std::make_shared<SharedEncoder>(made::words(),
                                                   Identity{"run", 0, "", 3}, 7, 0);
    settings.sends_metrics = true;
    settings.metrics = silent.target("/metrics");
    auto stuck = std::make_shared<Exporter>(settings, HeartbeatVocabulary(), encoder,
                                            *made.recorder, made.handoff,
                                            made.gpu_timers);
    stuck->set_resource(0, "resource");
    stuck->start();
    const std::uint64_t flush = stuck->begin_flush(made.in(0.01), "");
    CHECK_FALSE(stuck->wait(flush, made.in(0.05)));
    CHECK_FALSE(stuck->stop(made.in(0.05)));  // cut off, and ends a moment later
    CHECK(stuck->stop(made.in(20)));
    silence.unlock();
  }
}

TEST_CASE("spans wait for their numbers of the GPU; a flush sends them all the same") {
  made::Timer timer;
  Made made;
  made.gpu_timers.set(&timer);
  made.start();
  made.run_now(100);
  CHECK(made.flush());
  CHECK(made.spans_sent() == 2 * 100);
  CHECK(made.lost(kGpuMissingReason) == 0);
  timer.set_fast(false);
  made.run_now(10);
  CHECK(made.flush());
  CHECK(made.spans_sent() == 2 * 110);
  CHECK(made.lost(kGpuMissingReason) == 10);
  timer.lose(5);
  made.gpu_timers.set_complete(true);
  made.run_now(10);
  CHECK(made.flush("ok"));
  CHECK(made.spans_sent() == 2 * 120);
  CHECK(made.lost(kGpuMissingReason) == 10);
  CHECK(made.lost(kGpuLostReason) == 5);
}

TEST_CASE("with timers that come and go every span is sent once") {
  made::Timer timers[2];
  Made made;
  made.start();
  std::atomic<bool> is_running{true};
  std::thread changing([&] {
    for (int round = 0; is_running; ++round) {
      made.gpu_timers.set(round % 3 == 2 ? nullptr : &timers[round % 3]);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  made.run_now(20'000);
  is_running = false;
  changing.join();
  CHECK(made.flush("ok"));
  CHECK(made.spans_sent() == 2 * 20'000);
  CHECK(made.exporter->state().recorded == 20'000);
}
