"""Which packer encodes what a recorder gives: in C++ where the recorder is native."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from otel_straggler.config import ClientSettings
from otel_straggler.export.drops import ENCODE_ERROR
from otel_straggler.native import NATIVE
from otel_straggler.record.batch import NativeBatch
from otel_straggler.record.native_spans import NativeSpanPacker
from otel_straggler.record.recorder import Epoch, Record, Recorder
from otel_straggler.record.spans import Request, SpanPacker
from otel_straggler.wire.encode_spans import AttributeValue
from otel_straggler.wire.ids import SpanIds

Resource = Callable[[Epoch], Mapping[str, AttributeValue]]


class Packer(Protocol):
    """Turns ended runs into requests, in order of their ends."""

    @property
    def folded_runs(self) -> dict[str, int]:
        """Runs so far that went out in spans for several, by section."""

    def losses(self) -> dict[str, int]:
        """Runs so far that are in no request, by reason."""

    def pack(self, records: Sequence[Record], offset_ns: int, one_in: int = 1) -> list[Request]:
        """Encode ``records``; see :class:`~otel_straggler.record.spans.SpanPacker`."""


def packer_for(
    recorder: Recorder, settings: ClientSettings, resource: Resource, ids: SpanIds | None
) -> Packer:
    """The packer of what ``recorder`` gives from now on."""
    generation = recorder.epoch.generation
    if NATIVE is not None:
        from otel_straggler.record.native_recorder import NativeRecorder

        if isinstance(recorder, NativeRecorder):
            return _OfBlocks(NativeSpanPacker(settings, resource, generation, ids))
    return SpanPacker(settings, resource, generation, ids)


class _OfBlocks:
    """Gives the packer the block behind a batch."""

    def __init__(self, packer: NativeSpanPacker) -> None:
        self._packer = packer

    @property
    def folded_runs(self) -> dict[str, int]:
        return self._packer.folded_runs

    def losses(self) -> dict[str, int]:
        bad = self._packer.counts.get("bad_records", 0)
        return {ENCODE_ERROR: bad} if bad else {}

    def pack(self, records: Sequence[Record], offset_ns: int, one_in: int = 1) -> list[Request]:
        assert isinstance(records, NativeBatch)  # a native recorder gives no others
        return self._packer.pack_block(records.block, records.recorder, offset_ns, one_in)
