"""The native recorder and the one in Python record the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_straggler.native import REASON, VARIABLE
from otel_straggler.record.active import FORM

SCRIPT = Path(__file__).with_name("recorders.py")
needs_extension = pytest.mark.skipif(
    FORM == "python",
    reason=f"{REASON}: it would show that the native recorder records the same as this one",
)
NAMES = st.sampled_from(["a", "b", "forward"])
LEAVES = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.sampled_from([("end",), ("finish",)]),
    st.tuples(st.sampled_from(["open", "close", "begin"]), NAMES),
    st.tuples(st.just("sized"), NAMES, st.none() | st.integers(0, 9), st.none() | st.integers(0)),
)
ACTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["section", "fail"]), NAMES, st.lists(inner, max_size=4)),
        st.tuples(st.just("phase"), st.sampled_from(["eval", "warm-up"]), st.lists(inner)),
        st.tuples(st.just("thread"), st.lists(inner, max_size=4)),
    ),
    max_leaves=20,
)
PROGRAMS = st.lists(ACTS, max_size=8)


class Process:
    """A process that runs programs with the recorder that is wished for."""

    def __init__(self, wish: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            env={**os.environ, VARIABLE: wish},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.form = self._line().strip()

    def recorded(self, program: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(program) + "\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Process, Process]]:
    native, python = Process("required"), Process("off")
    assert (native.form, python.form) == ("native", "python")
    yield native, python
    native.close()
    python.close()


@needs_extension
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(program=PROGRAMS)
def test_random_programs_give_the_same_records(both: tuple[Process, Process], program: Any) -> None:
    """Nesting, steps, phases, exceptions, threads, sizes, sections opened and closed by hand and
    those of coroutines."""
    native, python = both
    assert native.recorded(program) == python.recorded(program)


@needs_extension
@pytest.mark.parametrize(
    "program",
    [
        [
            ["section", "a", [["off"], ["section", "b", [["on"], ["section", "a", []]]]]],
            ["section", "b", [["step", 1]]],
        ],
        [["open", "a"], ["on"], ["step", 2], ["close", "a"], ["end"]],
        [["begin", "a"], ["off"], ["finish"], ["on"], ["begin", "b"], ["finish"]],
    ],
)
def test_what_is_open_when_recording_begins_anew_is_the_same(
    both: tuple[Process, Process], program: Any
) -> None:
    """It keeps the session in which it began."""
    native, python = both
    found = native.recorded(program)
    assert found == python.recorded(program)
    assert found


@needs_extension
def test_the_tests_of_recording_pass_with_the_other_recorder() -> None:
    """As they stand."""
    files = ("test_recorder.py", "test_recording.py", "test_nested_sections.py", "test_doses.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(str(SCRIPT.with_name(name)) for name in files)],
        env={**os.environ, VARIABLE: "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
