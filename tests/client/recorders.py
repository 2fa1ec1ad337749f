"""Random programs of sections, run on whatever recorder this process has.

Run as a script it reads a program a line, as JSON, and answers with what was recorded of it, so
that a test can compare the native recorder with the one in Python.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Sequence
from typing import Any

from otel_straggler import phase, section, step
from otel_straggler.client.recorder import Record, is_failure
from otel_straggler.client.recording import FORM, RECORDER

Program = list[Any]
"""Acts in order: ["section", name, acts], ["fail", name, acts], ["step", n], ["end"],
["phase", name, acts], ["sized", name, microbatch, tokens], ["thread", acts], ["open", name],
["close", name], ["off"], ["on"], ["begin", name], ["finish"], ["wait", ns]."""


class PlannedError(Exception):
    """A program fails here on purpose."""


def run(program: Program) -> list[Any]:
    """What was recorded, without times and numbers; parents by their place in the list."""
    RECORDER.enable()
    opened: dict[str, int] = {}
    _act_all(program, opened, [])
    for name, times in opened.items():
        for _ in range(times):
            section(name).__exit__(None, None, None)
    RECORDER.disable()
    return reported(RECORDER.drain())


def reported(records: Sequence[Record]) -> list[Any]:
    indexes = {record[0][1]: at for at, record in enumerate(records)}
    sessions: list[Any] = []
    result = []
    for (timer, span, start_ns, context, work), enclosing, end_ns, error, waited_ns in records:
        if context.session not in sessions:
            sessions.append(context.session)
        assert start_ns <= end_ns
        result.append(
            {
                "name": timer.name,
                "kind": timer.kind,
                "step": context.step,
                "phase": context.phase,
                "epoch": sessions.index(context.session),
                "is_step": span == context.step_span,
                "of_step": indexes.get(context.step_span),
                "parent": indexes.get(enclosing[1]) if enclosing else None,
                "around": enclosing[0].name if enclosing else "",
                "work": list(work) if work and max(work) >= 0 else None,
                "failed": is_failure(error),
                "waited_ns": min(waited_ns, end_ns - start_ns),
            }
        )
    return result


def _act_all(program: Program, opened: dict[str, int], begun: list[Any]) -> None:
    for act in program:
        _act(act, opened, begun)


def _act(act: Any, opened: dict[str, int], begun: list[Any]) -> None:
    match act:
        case ["section", name, acts]:
            with section(name):
                _act_all(acts, opened, begun)
        case ["fail", name, acts]:
            with contextlib.suppress(PlannedError), section(name):
                _act_all(acts, opened, begun)
                raise PlannedError
        case ["phase", name, acts]:
            with phase(name):
                _act_all(acts, opened, begun)
        case ["sized", name, microbatch, tokens]:
            with section(name).run(microbatch=microbatch, tokens=tokens):
                pass
        case ["thread", acts]:
            thread = threading.Thread(target=_act_all, args=(acts, {}, []))
            thread.start()
            thread.join()
        case ["open", name]:
            section(name).__enter__()
            opened[name] = opened.get(name, 0) + 1
        case ["close", name]:
            section(name).__exit__(None, None, None)
            opened[name] = max(0, opened.get(name, 0) - 1)
        case ["step", number]:
            step(number)
        case ["end"]:
            RECORDER.end_step()
        case ["wait", waited_ns]:
            RECORDER.add_wait(waited_ns)
        case ["off"]:
            RECORDER.disable()
        case ["on"]:
            RECORDER.enable()
        case ["begin", name]:
            begun.append((section(name), section(name).begin_detached()))
        case ["finish"]:
            if begun:
                timer, token = begun.pop(0)
                timer.end_detached(token, None)


def main() -> None:
    print(FORM, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
