"""Who was named for a fault, how long that took, and who else was."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from otel_straggler.model.verdict import CALLED_SLOW

Json = dict[str, Any]
HANGS: Final = frozenset(
    {"rank_killed", "rank_hung", "rank_stuck", "gil_locked", "exception", "crash"}
    | {"hang_never_joined"}
)
"""Kinds that stop the run; the others make a rank slow."""
SECTIONS: Final[Mapping[str, frozenset[str | None]]] = {
    "compute": frozenset({"forward", "backward", "optimizer", None}),
    "forward": frozenset({"forward"}),
    "backward": frozenset({"backward"}),
    "data": frozenset({"data", "data_loading"}),
    "late": frozenset({None}),
}
"""The sections that a verdict may name, by kind; None: the step as a whole."""
CAUSES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("compute", "forward", "backward"), "slow_gpu"),
    "data": "slow_host",
    "late": "late_arrival",
}


@dataclass(slots=True, kw_only=True)
class Named:
    """A rank or host that the pipeline named in a run, for the first time.

    Attributes:
        way: "verdict", or "hang": the others wait for it.
        who: "rank 3", "host node-1".
        at_s, until_s: when that could be read first and last, in the time of the run.
        step: the newest that the verdict rests on; None of a hang.
        section, cause, text: as it says.
    """

    way: str
    who: str
    at_s: float
    until_s: float = 0.0
    step: int | None = None
    section: str | None = None
    cause: str = ""
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Watch:
    """What was named in one run, first occurrences in order."""

    named: dict[tuple[str, str], Named] = field(default_factory=dict)

    def read(self, run: Json, at_s: float) -> None:
        """Take a run of ``/v1/report`` as it is at ``at_s``."""
        for verdict in run.get("verdicts", ()):
            if verdict["state"] in CALLED_SLOW and verdict["scope"] in ("rank", "host"):
                who = f"rank {verdict['rank']}"
                if verdict["scope"] == "host":
                    who = f"host {verdict['node']}"
                self._add(
                    Named(
                        way="verdict", who=who, at_s=at_s, step=verdict["at_step"],
                        section=verdict["section"], cause=verdict["cause"],
                        text=verdict["sentence"],
                    )
                )  # fmt: skip
        for world in run.get("liveness", ()):
            for rank in world.get("culprits") or ():
                text = world.get("sentence") or ""
                self._add(Named(way="hang", who=f"rank {rank}", at_s=at_s, text=text))

    def _add(self, named: Named) -> None:
        first = self.named.setdefault((named.way, named.who), named)
        first.until_s = named.at_s


def grade(
    watch: Watch, kind: str, rank: int, onset_s: float, onset_step: int | None
) -> tuple[Json, list[Named]]:
    """Whether the rank was named for its fault, and the others that were."""
    way = "hang" if kind in HANGS else "verdict"
    found = watch.named.get((way, f"rank {rank}"))
    result: Json = {"kind": kind, "rank": rank, "found": found is not None}
    if found is not None:
        result["delay_s"] = round(found.at_s - onset_s, 2)
        if found.step is not None and onset_step is not None:
            result["delay_steps"] = found.step - onset_step
        if way == "verdict":
            result |= {"section": found.section, "cause": found.cause}
            result["section_right"] = found.section in SECTIONS[kind]
            result["cause_right"] = found.cause == CAUSES[kind]
        result["text"] = found.text
    others = [each for each in watch.named.values() if each.who != f"rank {rank}"]
    return result, others


def as_json(named: Iterable[Named]) -> list[Json]:
    """Of those that are named wrongly, and how long."""
    return [
        {"way": n.way, "who": n.who, "lasted_s": round(n.until_s - n.at_s, 2), "text": n.text}
        for n in named
    ]


def summary(runs: Sequence[Json]) -> Json:
    """Totals of the runs with faults and of those without, and all runs.

    Args:
        runs: with ``faults`` (from :func:`grade`), ``wrong`` (from :func:`as_json`) and
            ``wrong_alerts``, each with its ``rank``.
    """
    faulty = [run for run in runs if run["faults"]]
    healthy = [run for run in runs if not run["faults"]]
    result = {"totals": totals(faulty)}
    if healthy:
        result["healthy"] = {"runs": len(healthy), **_wrong(healthy)}
    return {**result, "runs": list(runs)}


def totals(runs: Sequence[Json]) -> Json:
    """Recall, precision, and delays by kind.

    Who is named for a moment as the rank that the others wait for, and not in an alert, counts
    apart: nothing acts on it.
    """
    faults = [fault for run in runs for fault in run["faults"]]
    found = [fault for fault in faults if fault["found"]]
    kinds = dict.fromkeys(fault["kind"] for fault in faults)
    wrong = _wrong(runs)
    said = len(found) + wrong["wrong_verdicts"] + wrong["wrong_alerts"]
    return {
        "faults": len(faults),
        "found": len(found),
        "recall": round(len(found) / len(faults), 4) if faults else None,
        "precision": round(len(found) / said, 4) if said else None,
        **wrong,
        "kinds": {kind: _of_kind([f for f in faults if f["kind"] == kind]) for kind in kinds},
    }


def _wrong(runs: Sequence[Json]) -> Json:
    named = [each for run in runs for each in run["wrong"]]
    alerted = [{f"rank {alert['rank']}" for alert in run["wrong_alerts"]} for run in runs]
    moments = [
        each["lasted_s"]
        for run, ranks in zip(runs, alerted, strict=True)
        for each in run["wrong"]
        if each["way"] == "hang" and each["who"] not in ranks
    ]
    return {
        "wrong_verdicts": sum(each["way"] == "verdict" for each in named),
        "wrong_alerts": sum(map(len, alerted)),
        "named_for_a_moment": len(moments),
        "longest_moment_s": max(moments, default=0.0),
    }


def _of_kind(faults: Sequence[Json]) -> Json:
    found = [fault for fault in faults if fault["found"]]
    delays = sorted(fault["delay_s"] for fault in found)
    steps = sorted(fault["delay_steps"] for fault in found if "delay_steps" in fault)
    result: Json = {"faults": len(faults), "found": len(found)}
    if delays:
        result["delay_s"] = {"p50": round(statistics.median(delays), 2), "max": delays[-1]}
    if steps:
        result["delay_steps"] = {"p50": statistics.median(steps), "max": steps[-1]}
        for name in ("section_right", "cause_right"):
            result[name] = sum(fault[name] for fault in found)
    return result
