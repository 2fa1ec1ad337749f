"""Blocks of the native ring to encoded requests, in C++ and without the GIL.

The same bytes, field by field, as :class:`~otel_straggler.record.spans.SpanPacker` makes of tuples.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.config import ClientSettings
from otel_straggler.native import NATIVE
from otel_straggler.record.recorder import Epoch
from otel_straggler.record.spans import Request
from otel_straggler.wire.encode_spans import AttributeValue, encode_resource
from otel_straggler.wire.ids import SpanIds

WORDS = (
    semconv.STEP,
    semconv.SEQ,
    semconv.MICROBATCH,
    semconv.TOKENS,
    semconv.GPU_KERNEL_TIME,
    semconv.GPU_BUSY_TIME,
    semconv.GPU_NCCL_TIME,
    semconv.GPU_KERNEL_COUNT,
    semconv.FOLD_COUNT,
    semconv.FOLD_SUM,
    semconv.FOLD_MIN,
    semconv.FOLD_MAX,
    semconv.FOLD_SKETCH,
    semconv.SECTION,
    semconv.SECTION_KIND,
    semconv.SECTION_PARENT,
    semconv.TIME_BASIS,
    semconv.PHASE,
    semconv.HOST_BASIS,
    semconv.CUPTI_BASIS,
    semconv.EVENTS_BASIS,
    semconv.STEP_SPAN,
    semconv.SCHEMA_URL,
    semconv.SCOPE_NAME,
    __version__,
)
"""In the order of ``Word`` in encode_names.hpp: C++ spells no name of the wire itself."""


_EPOCHS_TOLD = 8


class Tables(Protocol):
    """What the numbers in a block's records stand for: its recorder. Tables grow; what is there
    stays."""

    def section_names(self) -> Sequence[tuple[str, str]]:
        """Name and kind, by number."""

    def phases(self) -> Sequence[str]:
        """Text, by number; 0 is none."""

    def epochs(self) -> Sequence[Epoch]:
        """By number, the newest last."""


class NativeSpanPacker:
    """Turns blocks of records into requests of at most 512 spans and 1 MB, in order of their ends.

    Args:
        settings: identity, and the span budget.
        resource: resource attributes of an epoch.
        generation: records of another one belong to a session that was shut down.

    Attributes:
        encoder: the object in C++; an exporter there may use it too.

    Raises:
        RuntimeError: there is no extension module; ask :data:`otel_straggler.native.NATIVE` first.
    """

    def __init__(
        self,
        settings: ClientSettings,
        resource: Callable[[Epoch], Mapping[str, AttributeValue]],
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
            tuple(word.encode() for word in WORDS),
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
        self, block: bytes, tables: Tables, offset_ns: int, one_in: int = 1
    ) -> list[Request]:
        """Encode the records of ``block``.

        Args:
            block: whole records of 128 bytes, in order of their ends.
            tables: the recorder that it comes from, for the names of the numbers in it.
            offset_ns: Unix time minus ``CLOCK_MONOTONIC``.
            one_in: keep one step in so many.

        Cost: under 0.2 µs a span, without the GIL.
        """
        self.tell(tables)
        return [Request(*request) for request in self.encoder.encode(block, offset_ns, one_in)]

    @property
    def folded_runs(self) -> dict[str, int]:
        """Runs so far that went out in spans for several, by section."""
        folded: dict[str, int] = self.encoder.folded()
        return folded

    @property
    def counts(self) -> dict[str, int]:
        """Records by what became of them; ``bad_records`` name a section or phase that is none."""
        counts: dict[str, int] = self.encoder.counts()
        return counts

    def tell(self, tables: Tables) -> dict[int, bytes]:
        """Give the encoder what is new in the tables, which other threads add to meanwhile.

        Returns:
            The resource of each newest epoch, by number.
        """
        with self._lock:
            self._tell_names(tables.section_names(), tables.phases())
            return self._tell_epochs(tables.epochs())

    def _tell_names(self, sections: Sequence[tuple[str, str]], phases: Sequence[str]) -> None:
        while self._sections < len(sections):
            number = self._sections
            name, kind = sections[number]
            self.encoder.add_section(number, _utf8(name), _utf8(kind))
            self._sections = max(self._sections, number + 1)
        while self._phases < len(phases):
            number = self._phases
            self.encoder.add_phase(number, _utf8(phases[number]))
            self._phases = max(self._phases, number + 1)

    def _tell_epochs(self, epochs: Sequence[Epoch]) -> dict[int, bytes]:
        told = self._resources
        self._resources = {}
        for number in range(max(0, len(epochs) - _EPOCHS_TOLD), len(epochs)):
            if epochs[number].generation == self._generation:
                resource = encode_resource(self._resource(epochs[number]))
                self._resources[number] = resource
                if told.get(number) != resource:
                    self.encoder.add_epoch(number, resource)
        return dict(self._resources)


def _utf8(text: str) -> bytes:
    """As the encoder in Python writes it: half a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace")
