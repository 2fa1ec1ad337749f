"""Worlds whose heartbeats reach a worker, by a clock that the test moves; and what it publishes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from otel_straggler import semconv
from otel_straggler.alerts.rule import FleetStatus, RunStatus
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.worker import Worker
from otel_straggler.model.alert import Maintenance
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.metric_rules import DecodedMetrics

BEAT_S = 5.0
STUCK_AFTER_S = 600.0
"""More than a section that nothing is known of may take."""


class WatchedWorld:
    """One collector's worker without its threads, and the groups of one run.

    Args:
        settings: of the collector.
        groups: ranks that send heartbeats, by group.
        expected: ranks of each group; None: those that send.
        mode: of alerts.
    """

    def __init__(
        self,
        settings: Any,
        groups: dict[str, int] | int = 4,
        *,
        expected: int | None = None,
        mode: str = "page",
    ) -> None:
        self.now_s = 1.79e9
        self.clock_was_set_by_s = 0.0
        self.senders_clock_was_set_by_s = 0.0
        self.groups = {"": groups} if isinstance(groups, int) else groups
        self.expected = expected
        self.attempt = 0
        self.book = MaintenanceBook(lambda: int(self.now_s * 1e9))
        self.worker = Worker(
            replace(settings, alerts=replace(settings.alerts, mode=mode)),
            ByteBudget(1 << 30),
            monotonic_ns=lambda: int(self.now_s * 1e9),
            wall_s=lambda: self.now_s + self.clock_was_set_by_s,
            maintenance=self.book,
        )
        self.worker.sign("c")
        self.steps = dict.fromkeys(self.keys(), 0)
        self.progress_at_s = dict.fromkeys(self.keys(), self.now_s)

    def keys(self) -> list[tuple[str, int]]:
        return [(group, rank) for group, ranks in self.groups.items() for rank in range(ranks)]

    def source(self, group: str, rank: int) -> Source:
        return Source(
            run_id="run",
            job="job",
            rank=rank,
            group=group,
            world_size=self.expected or self.groups[group],
            node=f"node-{rank // 2}",
            session_id=f"{self.attempt}-{group}-{rank}",
            attempt=self.attempt,
        )

    # --- what happens ------------------------------------------------------------------------

    def live(
        self,
        seconds: float,
        *,
        still: Iterable[Any] = (),
        silent: Iterable[Any] = (),
        every_s: float = BEAT_S,
    ) -> None:
        """Time passes. Ranks get on by a step a second, but for those that stand ``still``; who is
        ``silent`` says nothing. A number is a rank of the group without a name."""
        stopped = {_key(one) for one in silent}
        standing = {_key(one) for one in still} | stopped
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += every_s
            for key in self.keys():
                if key not in standing:
                    self.steps[key] += int(every_s)
                    self.progress_at_s[key] = self.now_s
                if key not in stopped:
                    self.say(key)
            self.look()

    def stand(self, seconds: float = STUCK_AFTER_S, silent: Iterable[Any] = ()) -> None:
        """Nobody gets on; who is ``silent`` says nothing either."""
        self.live(seconds, still=self.keys(), silent=silent, every_s=BEAT_S)

    def say(self, key: Any, **more: Any) -> None:
        key = _key(key)
        reported: dict[str, Any] = {"step": self.steps[key], "open_section": "forward", **more}
        beat = Heartbeat(
            source=self.source(*key),
            sent_at_s=self.now_s + self.senders_clock_was_set_by_s,
            progress_at_s=self.progress_at_s[key] + self.senders_clock_was_set_by_s,
            open_time_s=1.0,
            **reported,
        )
        self.worker.ingest(DecodedMetrics(heartbeats=(beat,), points={}), 0)
        self.worker.process_queued()

    def end(self, outcome: Any, ranks: Iterable[Any] | None = None) -> None:
        for key in self.keys() if ranks is None else ranks:
            self.say(key, finished_at_s=self.now_s, outcome=outcome)
        self.look()

    def take(self, spans: bytes) -> None:
        """A request of spans."""
        self.worker.ingest(SpanDecoder().decode(spans), 0)
        self.worker.process_queued()

    def maintain(self, node: str, seconds: float = 3_600.0, reason: str = "a fan") -> None:
        now_ns = int(self.now_s * 1e9)
        until_ns = now_ns + int(seconds * 1e9)
        self.book.record(
            Maintenance(node=node, reason=reason, by="ada", at_ns=now_ns, until_ns=until_ns)
        )
        self.look()

    def look(self) -> None:
        """Publish what there is."""
        self.now_s += 0.2
        self.worker.show_soon()
        self.worker.request_page()
        self.worker.tick()

    # --- what is published --------------------------------------------------------------------

    @property
    def watched(self) -> FleetStatus:
        return self.worker.snapshot.watched

    def run(self, group: str = "") -> RunStatus:
        (result,) = [run for run in self.watched.runs if run.group == group]
        return result

    def reported(self, group: str = "") -> dict[str, Any]:
        """The group under ``liveness`` of the report."""
        runs = json.loads(self.worker.snapshot.report())["runs"]
        (result,) = [each for each in runs["run"]["liveness"] if each["group"] == group]
        return dict(result)

    def samples(self, metric: semconv.Metric, **wanted: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values in the text page, as Prometheus' own parser reads them."""
        return [
            (sample.labels, sample.value)
            for family in text_string_to_metric_families(self.worker.snapshot.page.decode())
            for sample in family.samples
            if sample.name == metric.prometheus_name
            and all(sample.labels.get(name) == value for name, value in wanted.items())
        ]

    def value(self, metric: semconv.Metric, **wanted: str) -> float | None:
        """Of the only such series; None if there is none."""
        result = self.samples(metric, **wanted)
        assert len(result) <= 1, result
        return result[0][1] if result else None

    def by(self, name: str, metric: semconv.Metric, **wanted: str) -> dict[str, float]:
        """Values by one label."""
        return {labels[name]: value for labels, value in self.samples(metric, **wanted)}


def _key(one: Any) -> tuple[str, int]:
    return ("", one) if isinstance(one, int) else one
