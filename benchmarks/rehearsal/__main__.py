"""What an SRE goes through in an hour, in minutes: does each alert come and go when it should?

    python -m benchmarks.rehearsal [--only NAME ...] [--at-once 4] [--json FILE]

Real gloo ranks of two teams; three shards with TLS, tokens and a history; the OpenTelemetry
Collector as agent and gateway in front of them, as ``deploy otelcol`` writes it; Prometheus with
the rules that are handed out, relabelled as docs/operate/scale-out.md says; one Alertmanager behind
the rules and one behind the shards, each with the configuration that is handed out. Intervals are
those of ``benchmarks.alert_delay.servers``: a second.

A table on standard output, one line for each alert that is due: seconds after its cause began until
the rules and the shard fired, after it ended until they resolved, and the messages that came. Then
all that was told of a run and is false. The exit code is 1 if an alert did not come, did not go, or
is false.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.about import about
from benchmarks.rehearsal.scenarios import (
    ALONE,
    ALONGSIDE,
    Scenario,
    run_id_of,
)
from benchmarks.rehearsal.scene import WAYS, Scene, scene
from benchmarks.rehearsal.told import Due, Played, Told

Json = dict[str, Any]
MAX_MESSAGES: Final = 6
"""About one alert, of each way."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all scenarios; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rehearsal")
    parser.add_argument("--only", action="append", help="a scenario; may be repeated")
    parser.add_argument("--at-once", type=int, default=4, help="scenarios")
    parser.add_argument("--json", help="also write the table to this file")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder, scene(Path(folder)) as stage:
        played = play(stage, args.only, args.at_once)
        rows = [row for name, each in played.items() for row in rows_of(stage, name, each)]
        wrong = [text for name, each in played.items() for text in false_ones(stage, name, each)]
    print(table(rows))
    wrong += [f"{row['scenario']}: {row['alert']}: {row['wrong']}" for row in rows if row["wrong"]]
    print("\n".join(wrong) or "nothing is false or missing")
    if args.json:
        result = {**about("torch"), "rows": rows, "wrong": wrong}
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    return 1 if wrong else 0


def play(stage: Scene, only: Sequence[str] | None, at_once: int) -> dict[str, Played]:
    """Scenarios on runs beside each other, then those on servers one after the other."""

    def one(team: str, scenario: Scenario) -> Played:
        run_id = run_id_of(team, scenario)
        began_s = time.monotonic()
        try:
            result = scenario(stage, run_id)
        except Exception as error:  # noqa: BLE001 (the others go on)
            traceback.print_exc(file=sys.stderr)
            result = Played(runs=(run_id,), problem=f"{type(error).__name__}: {error}")
        took_s = time.monotonic() - began_s
        print(f"{run_id}: {took_s:.0f} s {result.problem}", file=sys.stderr)
        return result

    def chosen(cast: Iterable[tuple[str, Scenario]]) -> list[tuple[str, Scenario]]:
        return [each for each in cast if not only or each[1].__name__ in only]

    with ThreadPoolExecutor(at_once) as pool:
        cast = chosen(ALONGSIDE)
        played = dict(
            zip(
                (scenario.__name__ for _, scenario in cast),
                pool.map(lambda each: one(*each), cast),
                strict=True,
            )
        )
    return played | {scenario.__name__: one(team, scenario) for team, scenario in chosen(ALONE)}


def rows_of(stage: Scene, name: str, played: Played) -> list[Json]:
    """A row for each alert that was due."""
    return [_row(stage, name, due) for due in played.due]


def _row(stage: Scene, name: str, due: Due) -> Json:
    row: Json = {"scenario": name, "alert": due.alert}
    wrong: list[str] = []
    for way in WAYS[:1] if due.by_rules_only else WAYS:
        its = [told for told in stage.told(way, due.run_id) if due.is_meant(told)]
        row[way] = _times(its, due)
        if not its:
            wrong.append(f"the {way} did not tell of it")
        elif any(told.ended_s is None for told in its):
            wrong.append(f"by the {way} it is not over")
        elif row[way]["messages"] > MAX_MESSAGES:
            wrong.append(f"{row[way]['messages']} messages by the {way}")
    return {**row, "wrong": "; ".join(wrong)}


def _times(its: Sequence[Told], due: Due) -> Json:
    if not its:
        return {"messages": 0}
    ends = [told.ended_heard_s for told in its if told.ended_heard_s is not None]
    return {
        "fired_after_s": round(min(told.heard_s for told in its) - due.from_s, 1),
        "over_after_s": round(max(ends) - due.until_s, 1) if ends else None,
        "messages": sum(told.messages for told in its),
    }


def false_ones(stage: Scene, name: str, played: Played) -> list[str]:
    """What was told of its runs that neither was due nor may be told besides."""
    due = {each.alert for each in played.due}
    result = [f"{name}: {played.problem}"] if played.problem else []
    for run_id in played.runs:
        for way in WAYS:
            names = {told.name for told in stage.told(way, run_id)} - due - {*played.allowed}
            result += [f"{name}: {alert} was told by the {way}" for alert in sorted(names)]
    return result


def table(rows: Sequence[Json]) -> str:
    """Seconds after the cause began and ended, and messages, by rules / by a collector."""
    head = ("scenario", "alert", "fired after, s", "over after, s", "messages")
    keys = ("fired_after_s", "over_after_s", "messages")
    lines = [head]
    for row in rows:
        figures = [" / ".join(str(row.get(way, {}).get(key, "-")) for way in WAYS) for key in keys]
        lines.append((row["scenario"], row["alert"].removeprefix("Straggler"), *figures))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


if __name__ == "__main__":
    sys.exit(main())
