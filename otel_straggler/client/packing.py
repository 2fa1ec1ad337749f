"""Blocks of the native ring to encoded requests, in C++ and without the GIL, once the numbers of
the GPU are there. The exporter in C++ has the same two stages inside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.client.native_records import RECORD_BYTES, NativeBatch
from otel_straggler.client.recorder import RING_CAPACITY, Record, RecordingSession
from otel_straggler.client.sender import ENCODE_ERROR, GPU_REASONS
from otel_straggler.config import ClientSettings
from otel_straggler.native import NATIVE
from otel_straggler.otlp.encode_spans import encode_resource
from otel_straggler.otlp.ids import SpanIds
from otel_straggler.semconv import AttributeValue

if TYPE_CHECKING:
    from otel_straggler.client.native_recorder import NativeRecorder
    from otel_straggler.client.python_packing import SpanPacker

GPU_POLL_S = 0.1
"""Interval of polls while the GPU is timed."""
_PATIENCE_S = 2.0
_SHORT_POLL_S = 0.01
_REGISTERED_SESSIONS = 8
TEXT = (
    semconv.STEP, semconv.SEQ, semconv.MICROBATCH, semconv.TOKENS,
    semconv.GPU_KERNEL_TIME, semconv.GPU_BUSY_TIME, semconv.GPU_NCCL_TIME, semconv.GPU_KERNEL_COUNT,
    semconv.COLLECTIVE_WAIT_TIME,
    semconv.FOLD_COUNT, semconv.FOLD_SUM, semconv.FOLD_MIN, semconv.FOLD_MAX, semconv.FOLD_SKETCH,
    semconv.SECTION, semconv.SECTION_KIND, semconv.SECTION_PARENT, semconv.TIME_BASIS,
    semconv.PHASE, semconv.HOST_BASIS, semconv.CUPTI_BASIS, semconv.EVENTS_BASIS,
    semconv.COLLECTIVE_BASIS, semconv.STEP_SPAN, semconv.SCHEMA_URL, semconv.SCOPE_NAME,
    __version__,
)  # fmt: skip
"""In the order of ``Word`` in encode_names.hpp: C++ spells no name of the wire itself."""
Resource = Callable[[RecordingSession], Mapping[str, AttributeValue]]


@dataclass(frozen=True, slots=True)
class Request:
    """An encoded request, its spans, and the executions behind them (a folded span stands for
    many)."""

    body: bytes
    spans: int
    runs: int


def packer_for(
    recorder: NativeRecorder, settings: ClientSettings, resource: Resource, ids: SpanIds | None
) -> NativeSpanPacker | SpanPacker:
    generation = recorder.session.generation
    if NATIVE is not None:
        return NativeSpanPacker(settings, resource, generation, ids)
    from otel_straggler.client.python_packing import SpanPacker

    return SpanPacker(settings, resource, generation, ids)


class NativeSpanPacker:
    """Encodes blocks of records: requests of at most 512 spans and 1 MB, in order of their ends.

    Records of another generation belong to a session that was shut down. ``encoder`` is the object
    in C++; an exporter there may use it too.
    """

    def __init__(
        self,
        settings: ClientSettings,
        resource: Resource,
        generation: int,
        ids: SpanIds | None = None,
    ) -> None:
        if NATIVE is None:
            msg = "NativeSpanPacker needs the extension module"
            raise RuntimeError(msg)
        self._resource = resource
        self._generation = generation
        self._lock = threading.RLock()  # a section may get its name inside a signal handler
        self.encoder = NATIVE.SpanEncoder(
            tuple(word.encode() for word in TEXT),
            settings.run_id.encode("utf-8", "surrogatepass"),
            settings.attempt,
            settings.group.encode("utf-8", "surrogatepass"),
            settings.rank,
            (ids or SpanIds()).seed,
            settings.span_budget,
        )
        self._sections = 0
        self._phases = 0
        self._resources: dict[int, bytes] = {}

    def pack_block(
        self, block: bytes, tables: NativeRecorder, offset_ns: int, sample_every: int = 1
    ) -> list[Request]:
        """Encode whole records of 128 bytes. Cost: under 0.2 µs a span, without the GIL.

        Args:
            offset_ns: Unix time minus ``CLOCK_MONOTONIC``.
            sample_every: keep one step in so many.
        """
        self.register(tables)
        return [
            Request(*request) for request in self.encoder.encode(block, offset_ns, sample_every)
        ]

    def pack(
        self, records: Sequence[Record], offset_ns: int, sample_every: int = 1
    ) -> list[Request]:
        assert isinstance(records, NativeBatch)  # it gives no others
        return self.pack_block(records.block, records.recorder, offset_ns, sample_every)

    @property
    def folded_runs(self) -> dict[str, int]:
        """Executions sent in folded spans so far, by section."""
        folded: dict[str, int] = self.encoder.folded()
        return folded

    @property
    def counts(self) -> dict[str, int]:
        """Records by outcome; ``bad_records`` name a section or phase that is none."""
        counts: dict[str, int] = self.encoder.counts()
        return counts

    def losses(self) -> dict[str, int]:
        bad = self.counts.get("bad_records", 0)
        return {ENCODE_ERROR: bad} if bad else {}

    def register(self, tables: NativeRecorder) -> dict[int, bytes]:
        """Give the encoder what is new in the recorder's tables; the resources of the newest
        sessions."""
        with self._lock:
            self._register_names(tables.sections, tables.phases)
            return self._register_sessions(tables.sessions)

    def _register_names(self, sections: Sequence[tuple[str, str]], phases: Sequence[str]) -> None:
        while self._sections < len(sections):
            number = self._sections
            name, kind = sections[number]
            self.encoder.add_section(number, _utf8(name), _utf8(kind))
            self._sections = max(self._sections, number + 1)
        while self._phases < len(phases):
            number = self._phases
            self.encoder.add_phase(number, _utf8(phases[number]))
            self._phases = max(self._phases, number + 1)

    def _register_sessions(self, sessions: Sequence[RecordingSession]) -> dict[int, bytes]:
        known = self._resources
        self._resources = {}
        for number in range(max(0, len(sessions) - _REGISTERED_SESSIONS), len(sessions)):
            if sessions[number].generation == self._generation:
                resource = encode_resource(self._resource(sessions[number]))
                self._resources[number] = resource
                if known.get(number) != resource:
                    self.encoder.add_epoch(number, resource)
        return dict(self._resources)


class GpuNumbers:
    """Holds back executions whose GPU times are awaited, for 2 s at most; all come out in order."""

    def __init__(self, recorder: NativeRecorder) -> None:
        assert NATIVE is not None  # the recorder is native
        self._recorder = recorder
        self._stage: Any = NATIVE.GpuStage()
        self._ready: list[bytes] = []

    @property
    def is_needed(self) -> bool:
        """Whether anybody has ever timed the GPU in this process."""
        return bool(self._stage.is_needed())

    @property
    def is_full(self) -> bool:
        """Whether so many are ready that it is time to drain them."""
        return sum(map(len, self._ready)) > RING_CAPACITY // 2 * RECORD_BYTES

    def put(self, batch: NativeBatch) -> None:
        self._stage.put(batch.block)

    def poll(self) -> None:
        """Ask for numbers, now that all that has ended was put. Cost: some ns each."""
        self._ready.append(self._stage.take_ready(time.monotonic_ns()))

    def drain(self) -> NativeBatch:
        """Executions whose numbers are there, or not awaited any longer; see ``poll``."""
        block = b"".join(self._ready)
        self._ready.clear()
        return NativeBatch(block, self._recorder, {}, {})

    def wait(self, deadline_s: float, poll: Callable[[], None]) -> None:
        """Wait for numbers, calling ``poll``, for half the time until ``deadline_s`` (monotonic) at
        most."""
        now_s = time.monotonic()
        until_s = now_s + min(max(0.0, (deadline_s - now_s) / 2), _PATIENCE_S)
        while self._stage.may_get_more() and time.monotonic() < until_s:
            time.sleep(_SHORT_POLL_S)
            poll()
        self._ready.append(self._stage.take_all())

    def losses(self) -> dict[str, int]:
        counts = zip(GPU_REASONS, self._stage.losses(), strict=True)
        return {reason: count for reason, count in counts if count}


def _utf8(text: str) -> bytes:
    """Half a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace")
