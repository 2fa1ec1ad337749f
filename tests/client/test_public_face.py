"""What a user's program sees of the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

import otel_straggler
from otel_straggler import section, step
from otel_straggler.errors import UsageError

LIGHT = """
import sys
import otel_straggler
heavy = {"torch", "grpc", "numpy", "requests", "opentelemetry", "google.protobuf"}
sys.exit(", ".join(sorted(heavy & set(sys.modules))) or 0)
"""


def test_the_public_names_are_these() -> None:
    """A name is added or removed on purpose."""
    assert otel_straggler.__all__ == [
        "__version__",
        "configure",
        "flush",
        "gpu_timing",
        "phase",
        "profile",
        "section",
        "set_gpu_timing",
        "set_topology",
        "shutdown",
        "step",
        "watch",
    ]
    assert all(hasattr(otel_straggler, name) for name in otel_straggler.__all__)


def test_importing_the_package_loads_nothing_heavy() -> None:
    """The import must not slow down a program that never configures telemetry."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_everything_may_be_called_without_configure() -> None:
    """A library may instrument itself and leave it to the program to switch telemetry on."""
    with otel_straggler.step(1), otel_straggler.phase("eval"), section("forward") as entered:
        pass
    assert entered is section("forward")
    assert otel_straggler.flush()
    otel_straggler.shutdown()


def test_the_same_section_is_the_same_object() -> None:
    """A section may be named in the loop itself: nothing is built anew."""
    assert section("forward") is section("forward")
    assert section("forward") is not section("forward", kind="wait")
    assert repr(section("forward", kind="wait")) == "section('forward', kind='wait')"


def test_a_decorated_function_keeps_its_name_and_result() -> None:
    """The decorator hides nothing of the function."""

    @section("add")
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    assert (add(1, b=2), add.__name__, add.__doc__) == (3, "add", "Adds.")


@pytest.mark.parametrize("flavour", ["sync", "async"])
def test_a_generator_is_refused_with_the_way_out(flavour: str) -> None:
    """The body of a generator runs in pieces; one span around them would say nothing."""

    def numbers():  # type: ignore[no-untyped-def]
        yield 1

    async def async_numbers():  # type: ignore[no-untyped-def]
        yield 1

    with pytest.raises(UsageError, match=r"generator. Put 'with section\(...\):' around"):
        section("numbers")(numbers if flavour == "sync" else async_numbers)


def test_what_cannot_be_called_is_refused() -> None:
    """``section("x")("y")`` is a slip of the keyboard."""
    with pytest.raises(UsageError, match="expected a function"):
        section("x")("y")  # type: ignore[type-var]


def test_a_step_outside_of_a_session_is_free_of_state() -> None:
    """Nothing is remembered before configure()."""
    assert step(1) is step(2)
