"""The compiled extension is built with what makes an overflow a crash instead of an entrance."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from otel_straggler.native import NATIVE


@pytest.fixture(scope="module")
def headers() -> str:
    """What readelf says of the extension."""
    readelf = shutil.which("readelf")
    if NATIVE is None or readelf is None:
        pytest.skip(
            "no extension, or no readelf (apt install binutils): its flags were not looked at"
        )
    command = [readelf, "--wide", "--dynamic", "--program-headers", "--dyn-syms", NATIVE.__file__]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_addresses_of_functions_are_resolved_and_locked_when_it_is_loaded(headers: str) -> None:
    """Full RELRO: nobody redirects a call by writing into a table."""
    assert "GNU_RELRO" in headers
    assert "BIND_NOW" in headers or "NOW" in headers.partition("FLAGS_1")[2].splitlines()[0]


def test_its_stack_is_guarded_and_holds_no_code(headers: str) -> None:
    """A canary in functions with buffers; a stack that is not executable."""
    assert "__stack_chk_fail" in headers
    [stack] = [line for line in headers.splitlines() if "GNU_STACK" in line]
    assert " RWE " not in stack
