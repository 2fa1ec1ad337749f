"""Sources of one stream: a cache by object, codes and names, and where their rows belong."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from otel_straggler.model.decoding import plain, read_as
from otel_straggler.model.observation import (
    NO_KERNEL,
    NO_SEQ,
    Ints,
    Kernel,
    ObservationBatch,
    Section,
    first_and_last_start,
)
from otel_straggler.model.rank import Source
from otel_straggler.semconv import OTHER_SECTION

_MAX = 1 << 18
_Value = TypeVar("_Value")


class SourceCache(Generic[_Value]):
    """Finds a value by the object that describes a source, about ten times as fast as by its
    fields; decoders give the same object for the same description.

    >>> seen = SourceCache[int]()
    >>> one, two = Source(run_id="r", rank=0), Source(run_id="r", rank=1)
    >>> seen.put(one, 7)
    >>> seen.values_of([one, two])
    [7, None]
    """

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Source, _Value]] = {}  # the source keeps its id taken

    def values_of(self, sources: Sequence[Source]) -> list[_Value | None]:
        get = self._by_id.get
        result = [get(id(source)) for source in sources]
        return [None if entry is None else entry[1] for entry in result]

    def put(self, source: Source, value: _Value) -> None:
        """Remember; all is forgotten when it becomes too much."""
        if len(self._by_id) >= _MAX:
            self._by_id.clear()
        self._by_id[id(source)] = (source, value)

    def clear(self) -> None:
        self._by_id.clear()


@dataclass(slots=True)
class SourceTables:
    """Tables that only grow, indexed by the code columns of this stream's rows. ``folded`` counts
    rows whose section has no code of its own, ``folded_name`` is one of those."""

    sources: list[Source] = field(default_factory=list)
    source_code: dict[tuple[int, str, str], int] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)
    section_code: dict[str, int] = field(default_factory=dict)
    kernel_code: dict[Kernel, int] = field(default_factory=dict)
    folded: int = 0
    folded_name: str = ""
    _seen: SourceCache[int] = field(default_factory=SourceCache)

    def codes_of_seen(self, sources: Sequence[Source]) -> list[int] | None:
        """Codes; None if a source is new or has another description than last."""
        codes: list[int] = []
        for source, code in zip(sources, self._seen.values_of(sources), strict=True):
            if code is None or self.sources[code] is not source:
                return None
            codes.append(code)
        return codes

    def codes_of(self, sources: Sequence[Source]) -> list[int]:
        """Codes, new ones for new sources. A changed description (a late role) replaces the old one
        of the same session."""
        codes: list[int] = []
        for source in sources:
            code = self.source_code.setdefault((source.rank, *source.session), len(self.sources))
            self.sources[code : code + 1] = [source]
            self._seen.put(source, code)
            codes.append(code)
        return codes

    def code_of_section(self, section: Section, max_names: int) -> int:
        code = self.section_code.get(section.name)
        if code is not None:
            self._record_parent(section)
            return code
        if len(self.sections) >= max_names and section.name != OTHER_SECTION:
            return self.code_of_section(Section(OTHER_SECTION, "other"), max_names)
        self.sections[section.name] = section
        return self.section_code.setdefault(section.name, len(self.section_code))

    def _record_parent(self, section: Section) -> None:
        """A section that also runs by itself is no part of another."""
        known = self.sections[section.name]
        if known.parent and not section.parent:
            self.sections[section.name] = replace(known, parent="")

    def state(self) -> dict[str, Any]:
        """State for a restart, in JSON types."""
        return {
            "sources": plain(self.sources),
            "sections": plain(list(self.sections.values())),
            "kernels": plain(list(self.kernel_code)),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`, before the first row."""
        self.codes_of(read_as(list[Source], state["sources"]))
        for section in read_as(list[Section], state["sections"]):
            self.code_of_section(section, len(state["sections"]))
        kernels = read_as(list[Kernel], state["kernels"])
        self.kernel_code = {kernel: code for code, kernel in enumerate(kernels)}

    def recode(
        self, batch: ObservationBatch, codes_of_sources: Sequence[int], max_names: int
    ) -> ObservationBatch:
        """The same rows with codes of these tables; sections beyond ``max_names`` share one."""
        source_codes = np.array(codes_of_sources, np.int32)
        kernels = [self.kernel_code.setdefault(k, len(self.kernel_code)) for k in batch.kernels]
        kernel_codes = np.array([*kernels, NO_KERNEL], np.int32)  # code -1 picks the last
        used = np.bincount(batch.section, minlength=len(batch.sections))
        section_codes = np.zeros(len(batch.sections), np.int32)
        marks = np.zeros(len(batch.sections), np.int64)
        for code in np.flatnonzero(used).tolist():
            section = batch.sections[code]
            section_codes[code] = self.code_of_section(section, max_names)
            if section.name not in self.section_code:
                self.folded += int(used[code])
                self.folded_name = section.name
                # Never 0; above the bits of a count of runs.
                marks[code] = (zlib.crc32(section.name.encode()) or 1) << 31
        return replace(
            batch,
            source=source_codes[batch.source],
            section=section_codes[batch.section],
            kernel=kernel_codes[batch.kernel],
            seq=_keep_apart(batch, marks) if marks.any() else batch.seq,
        )


def _keep_apart(batch: ObservationBatch, marks: Ints) -> Ints:
    """Keep runs of sections folded into one name distinct by mixing the name (``marks``, by section
    code) into ``seq``. All names at once: one pass per name was too slow under a flood of names."""
    return np.where(batch.seq != NO_SEQ, batch.seq ^ marks[batch.section], batch.seq)


SHOWN_FOR_S = 60.0
_RankKey = tuple[int, int]
"""Attempt and rank."""


@dataclass(slots=True)
class _Claim:
    source: Source
    first_start_ns: int
    clashed_at_ns: int | None = None


class ClashWatch:
    """Sessions that claimed each rank of a world, and who continues after a newer claim: two live
    processes with one rank are a mistake in the job's setup, shown and never merged."""

    def __init__(self, tolerance_s: float) -> None:
        self._tolerance_ns = int(tolerance_s * 1e9)
        self._claims: dict[_RankKey, list[_Claim]] = {}
        self._contested: dict[_RankKey, None] = {}
        self._alone: SourceCache[bool] = SourceCache()

    def observe(self, batch: ObservationBatch, now_ns: int) -> None:
        """An older session clashes once it sends work that began after the newer session's first,
        beyond the tolerance for late deliveries."""
        used = np.flatnonzero(np.bincount(batch.source)).tolist()
        alone = self._alone.values_of([batch.sources[code] for code in used])
        if all(alone):
            return
        first, last = first_and_last_start(batch)
        for code, is_alone in zip(used, alone, strict=True):
            if not is_alone:
                self._observe_one(batch.sources[code], int(first[code]), int(last[code]), now_ns)

    def _observe_one(self, source: Source, first_ns: int, last_ns: int, now_ns: int) -> None:
        key = source.attempt, source.rank
        claims = self._claims.setdefault(key, [])
        mine = next((c for c in claims if c.source.session == source.session), None)
        if mine is None:
            if claims:
                self._alone.clear()
                self._contested[key] = None
            claims.append(_Claim(source, first_ns))
        elif last_ns > claims[-1].first_start_ns + self._tolerance_ns:
            mine.clashed_at_ns = None if mine is claims[-1] else now_ns
        if len(claims) == 1:  # nobody to clash with
            self._alone.put(source, True)

    def live(self, now_ns: int) -> tuple[Source, ...]:
        """Sessions that clashed within the last minute."""
        return tuple(
            claim.source
            for key in self._contested
            for claim in self._claims[key]
            if claim.clashed_at_ns is not None and now_ns - claim.clashed_at_ns < SHOWN_FOR_S * 1e9
        )

    def drop_attempt(self, attempt: int) -> None:
        self._alone.clear()
        for key in [key for key in self._claims if key[0] == attempt]:
            del self._claims[key]
            self._contested.pop(key, None)


def split_by_route(
    batch: ObservationBatch, cache: SourceCache[_Value], find: Callable[[int], _Value | None]
) -> Iterator[tuple[_Value, ObservationBatch]]:
    """Rows of a batch by the route of their sources, in order of appearance. ``find`` gives the
    route of an unknown source by its code; None leaves its rows out."""
    used = np.flatnonzero(np.bincount(batch.source)).tolist()
    routes = cache.values_of([batch.sources[code] for code in used])
    first = routes[0]
    if first is not None and routes.count(first) == len(routes):  # as nearly always
        yield first, _only_sources(batch, used)
        return
    members: dict[int, tuple[_Value, list[int]]] = {}
    for code, known in zip(used, routes, strict=True):
        route = known or find(code)
        if route is not None:
            cache.put(batch.sources[code], route)
            members.setdefault(id(route), (route, []))[1].append(code)
    for route, codes in members.values():
        is_all = len(codes) == len(used)
        rows = batch if is_all else batch.take(np.isin(batch.source, codes))
        yield route, _only_sources(rows, codes)


def _only_sources(rows: ObservationBatch, codes: list[int]) -> ObservationBatch:
    """The same rows with only these sources in the table."""
    if len(codes) == len(rows.sources):
        return rows
    new_code = np.full(len(rows.sources), -1, np.int32)
    new_code[codes] = np.arange(len(codes), dtype=np.int32)
    return replace(
        rows, sources=tuple(rows.sources[code] for code in codes), source=new_code[rows.source]
    )
