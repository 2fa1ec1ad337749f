"""What is told of a run that is over, in the past: a report has sentences of while it ran."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from otel_straggler.model.verdict import CAUSES, Verdict
from otel_straggler.score.verdicts.sentences import sentence

Json = Mapping[str, Any]

ENDED: Final = frozenset({"finished", "cancelled", "preempted", "failed"})
_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Verdict))


def is_over(run: Json, group: str) -> bool:
    """Whether a world of the run has ended, as far as its ranks told.

    >>> is_over({"liveness": [{"group": "", "state": "finished"}]}, "")
    True
    """
    return any(
        world["group"] == group and world["state"] in ENDED for world in run.get("liveness", ())
    )


def said_of(run: Json, verdict: Json) -> str:
    """The sentence of a verdict; in the past if the run has ended, or was restarted since."""
    said = str(verdict["sentence"] or "")
    is_past = is_over(run, verdict["group"]) or verdict["attempt"] < _attempt(run, verdict["group"])
    if not said or not is_past or verdict["cause"] not in CAUSES:
        return said
    told = {name: verdict[name] for name in _FIELDS if verdict.get(name) is not None}
    return sentence(Verdict(**{"run_id": "", **told}), is_over=True)


def _attempt(run: Json, group: str) -> int:
    """That was judged last; 0 if none was."""
    world = run["run"]["worlds"].get(group)
    return 0 if world is None else int(world["attempt"])
