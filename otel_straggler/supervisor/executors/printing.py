"""The default: print what would be done, one JSON line each, and touch nothing."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from otel_straggler.supervisor.fleet import Decision, decision_json
from otel_straggler.supervisor.policy import ACTIONS
from otel_straggler.supervisor.store import Step


class PrintExecutor:
    """Prints to standard output. After a crash nobody can say whether a line was printed."""

    name = "print"
    actions = frozenset(ACTIONS)

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        assert decision.action is not None
        target = decision.host or decision.run_id
        return (Step(verb=decision.action, target=target, arguments=decision_json(decision)),)

    def observe(self, step: Step) -> dict[str, Any]:  # noqa: ARG002 - there is nothing to observe
        return {}

    def perform(self, step: Step, before: dict[str, Any]) -> str:  # noqa: ARG002
        keys = ("host", "replacement", "run_id", "rule", "cause_id")
        shown = {key: step.arguments[key] for key in keys if step.arguments[key]}
        print(
            json.dumps({"action": step.verb, **shown}), file=self._stream or sys.stdout, flush=True
        )
        return "printed"

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:  # noqa: ARG002
        return None
