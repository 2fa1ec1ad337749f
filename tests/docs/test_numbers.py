"""Numbers that the pages state are those of the code."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from otel_straggler.cli.otelcol_files import MAX_SHARDS, SLOTS
from otel_straggler.client.python_packing import MAX_SPANS
from otel_straggler.client.recorder import RING_CAPACITY
from otel_straggler.collector.api.cache import GZIP_FROM
from otel_straggler.collector.api.events import COMMENT_S, MAX_STREAMS
from otel_straggler.collector.api.peers import MOVED_S
from otel_straggler.collector.history.history import MAX_WAITING_BYTES
from otel_straggler.collector.history.pages import MAX_RUNS as MAX_RUNS_OF_PAGE
from otel_straggler.collector.history.run_views import MAX_COLUMNS as MAX_OLDER
from otel_straggler.collector.history.writer import MAX_S as REFILL_S
from otel_straggler.collector.ingest.http_messages import HttpLimits
from otel_straggler.collector.metrics.verdict_series import MAX_VERDICTS
from otel_straggler.collector.runs.timeline import MAX_COLUMNS
from otel_straggler.collector.settings import (
    HistorySettings,
    MetricsSettings,
    ScoringSettings,
)
from otel_straggler.collector.views.patterns import MIN_EXCESS
from otel_straggler.collector.views.verdict_json import MAX_VERDICTS as MAX_VERDICTS_OF_PAGE
from otel_straggler.config import ClientSettings
from otel_straggler.detect.scores.settings import HangSettings, VerdictSettings
from otel_straggler.detect.scores.windows import MIN_STEPS
from otel_straggler.model.causes import CAUSES
from otel_straggler.otlp.clients.client import MAX_DELAY_S
from otel_straggler.report.collected import LONGEST_S
from otel_straggler.report.statistics import MAX_RUNS, MAX_SECTIONS

from .pages import ROOT, text_of


def defaults(of: Any) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(of)}


CLIENT, SCORING = defaults(ClientSettings), defaults(ScoringSettings)
VERDICTS = defaults(VerdictSettings)
HISTORY, METRICS = defaults(HistorySettings), defaults(MetricsSettings)
STATED = {
    "start/concepts.md": [
        f"every {CLIENT['heartbeat_s']:g} s (`heartbeat_s`)",
        f"every {CLIENT['histogram_s']:g} s",
        f"one step in {CLIENT['sample_steps']} (`sample_steps`)",
        f"a queue of {CLIENT['queue_bytes'] // 2**20} MiB (`queue_bytes`)",
        f"within {CLIENT['exit_deadline_s']:g} s (`exit_deadline_s`)",
        f"requests of up to {MAX_SPANS}",
        f"a ring of {RING_CAPACITY:,} executions",
        f"or {SCORING['grace_s']:g} s after the first did",
    ],
    "start/glossary.md": [
        f"together: {SCORING['window_steps']}; of long steps those of",
        f"those of {SCORING['window_longest_s']:g} s, at least {MIN_STEPS};",
        f"at least {MIN_STEPS}; {SCORING['window_s']:g} s without steps",
        f"under the threshold of {SCORING['threshold']:g}",
    ],
    "reference/http-api.md": [
        f"from {GZIP_FROM / 1000:g} kB",
        f"The {MAX_RUNS_OF_PAGE} newest runs that only",
        f"at most {MAX_VERDICTS_OF_PAGE}, `verdicts_left_out`",
        f"it is {MIN_EXCESS:.0%}".replace("%", " %") + " slower than the faster half",
        f"The newest {MAX_COLUMNS} windows of every run",
        f"`metrics.timeline_mib` ({METRICS['timeline_mib']} MiB)",
        f"as many as can be read within {REFILL_S:g} s",
        f"of more than {MAX_OLDER}, {MAX_OLDER} evenly chosen",
        f"after {COMMENT_S:g} s without events",
        f"At most {MAX_STREAMS} streams are open",
        f"reads nothing for {HttpLimits().stall_s:g} s",
    ],
    "operate/scale-out.md": [
        f"any number from 1 to {MAX_SHARDS}",
        f"one of {SLOTS:,} slots",
        f"evicts it after {MOVED_S:g} s of silence",
        f"`liveness.lost_after_seconds`, {HangSettings().lost_after_s:g} s",
    ],
    "operate/history.md": [
        f"every {HISTORY['save_every_seconds']:g} s (`save_every_seconds`)",
        f"{HISTORY['keep_days']:g} days (`keep_days`) and {HISTORY['max_mib']} MiB (`max_mib`)",
        f"up to {MAX_WAITING_BYTES // 2**20} MiB wait",
    ],
    "recipes/from-nvrx.md": [
        f"At most the {MAX_RUNS:,} newest executions of a section count",
        f"| {MAX_SECTIONS:,} between two reports",
        f"None within {LONGEST_S:g} s",
    ],
    "recipes/from-opentelemetry.md": [
        f"names beyond {SCORING['max_section_names']} of a run",
        f"{SCORING['window_s']:g} s long, in place of windows of {SCORING['window_steps']}",
        f"at most {CLIENT['sdk_spans_per_s']:g} spans a second",
        f"of one step in {CLIENT['sample_steps']} (`sample_steps`)",
    ],
    "operate/verdicts.md": [
        f"at least {VERDICTS['page_slowdown'] - 1:.0%} (".replace("%", " %"),
        f"at least {VERDICTS['page_loss']:.0%} of".replace("%", " %"),
        f"Groups of fewer than {VERDICTS['min_peers']} ranks",
        f"fewer than {VERDICTS['quorum']:.0%} of".replace("%", " %"),
        f"that {VERDICTS['windows_steps'][0]} steps can show",
        f"the first {VERDICTS['warm_up_steps']} steps after a start",
        f"with more than {MAX_VERDICTS} of a run",
        *(f"| `{word}` {info.name} |" for word, info in CAUSES.items()),
    ],
}


@pytest.mark.parametrize(("page", "text"), [(p, w) for p, many in STATED.items() for w in many])
def test_a_number_on_a_page_is_the_one_in_the_code(page: str, text: str) -> None:
    """In the words of the page."""
    assert text in text_of(ROOT / "docs" / page)


def test_pauses_between_tries_grow_to_half_a_minute() -> None:
    """As the page of concepts says."""
    assert MAX_DELAY_S == 30.0
    assert "half a minute at most" in text_of(ROOT / "docs" / "start" / "concepts.md")
