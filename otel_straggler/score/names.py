"""The names of one stream: what the code columns of its rows index."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from otel_straggler.model.observation import (
    NO_KERNEL,
    NO_SEQ,
    Ints,
    Kernel,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.score.seen import SeenSources
from otel_straggler.semconv import OTHER_SECTION


def session_of(source: Source) -> tuple[str, str]:
    """What tells two processes of one rank apart."""
    return source.session_id, source.node


@dataclass(slots=True)
class Names:
    """Tables that only grow: what the code columns of this stream's rows index.

    ``folded`` counts rows whose section has no code of its own, ``folded_name`` is one of those.
    """

    sources: list[Source] = field(default_factory=list)
    source_code: dict[tuple[int, str, str], int] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)
    section_code: dict[str, int] = field(default_factory=dict)
    kernel_code: dict[Kernel, int] = field(default_factory=dict)
    folded: int = 0
    folded_name: str = ""
    _seen: SeenSources[int] = field(default_factory=SeenSources)

    def codes_of_seen(self, sources: Sequence[Source]) -> list[int] | None:
        """Their codes; None if one is new, or has another description than it had last."""
        codes: list[int] = []
        for source, code in zip(sources, self._seen.values_of(sources), strict=True):
            if code is None or self.sources[code] is not source:
                return None
            codes.append(code)
        return codes

    def codes_of(self, sources: Sequence[Source]) -> list[int]:
        """Their codes, new ones for new sources."""
        codes = [self.code_of_source(source) for source in sources]
        for source, code in zip(sources, codes, strict=True):
            self._seen.put(source, code)
        return codes

    def code_of_source(self, source: Source) -> int:
        """A changed description (a late role) replaces the old one of the same session."""
        code = self.source_code.setdefault((source.rank, *session_of(source)), len(self.sources))
        if code == len(self.sources):
            self.sources.append(source)
        else:
            self.sources[code] = source
        return code

    def code_of_section(self, section: Section, max_names: int) -> int:
        code = self.section_code.get(section.name)
        if code is not None:
            self._note_parent(section)
            return code
        if len(self.sections) >= max_names and section.name != OTHER_SECTION:
            return self.code_of_section(Section(OTHER_SECTION, "other"), max_names)
        self.sections[section.name] = section
        return self.section_code.setdefault(section.name, len(self.section_code))

    def _note_parent(self, section: Section) -> None:
        """What also runs by itself is no part of another: its time is added up with theirs."""
        known = self.sections[section.name]
        if known.parent and not section.parent:
            self.sections[section.name] = replace(known, parent="")

    def recode(
        self, batch: ObservationBatch, codes_of_sources: Sequence[int], max_names: int
    ) -> ObservationBatch:
        """The rows of ``batch`` with the codes of these tables, which learn what is new; sections
        beyond ``max_names`` share one."""
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
                marks[code] = _mark_of(section.name)
        return replace(
            batch,
            source=source_codes[batch.source],
            section=section_codes[batch.section],
            kernel=kernel_codes[batch.kernel],
            seq=_keep_apart(batch, marks) if marks.any() else batch.seq,
        )


def _mark_of(folded_name: str) -> int:
    """Never 0; the bits above those that a count of runs reaches."""
    return (zlib.crc32(folded_name.encode()) or 1) << 31


def _keep_apart(batch: ObservationBatch, marks: Ints) -> Ints:
    """Sections folded into one name count their runs apart; mix the name in, so that two of
    their runs are not taken for one that was delivered twice.

    All names at once: with a pass over the rows for each, a flood of names kept the scoring thread
    busy for minutes, and with it whoever wanted to end the collector.

    Args:
        batch: its rows have the codes of the batch.
        marks: by code of a section; 0 of those that have a name of their own.
    """
    return np.where(batch.seq != NO_SEQ, batch.seq ^ marks[batch.section], batch.seq)
