"""Whatever is under the name of a small file, its reader ends with one sentence: it waits for
nobody, reads no device without end, and has no traceback of Python's parsers."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.alerts.checking import read_file
from otel_straggler.collector.access.expiry import ends_of_certificates
from otel_straggler.collector.access.grants import read_grants
from otel_straggler.collector.access.settings import parse_address
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.collector.settings_file import load_settings
from otel_straggler.errors import StragglerError
from otel_straggler.inject.plan import read_plan
from otel_straggler.integrations.lightning.heartbeat_timeouts import read_timeouts
from otel_straggler.launcher.events import parse_event
from otel_straggler.launcher.progress import newest_step
from otel_straggler.model.json_body import JsonBody
from otel_straggler.model.rank_failure import exit_failure
from otel_straggler.otlp.clients.token import TOKEN_VARIABLE, token_headers
from otel_straggler.regular_files import UnsafeFileError, read_json, read_small_text
from otel_straggler.secret import reveal
from otel_straggler.setting import count, is_number
from otel_straggler.strict_json import parse_json, whole_number
from otel_straggler.supervisor.settings import load_settings as load_supervisor

from ..damage import damaged

DIGITS = "9" * 5_000
NESTED = 100_000
Reader = Callable[[Path], object]
READERS: dict[str, Reader] = {
    "JSON": read_json,
    "text": read_small_text,
    "a collector's settings": lambda path: load_settings(path, {}),
    "a supervisor's settings": load_supervisor,
    "grants": lambda path: read_grants(str(path)),
    "a token": lambda path: token_headers({TOKEN_VARIABLE: str(path)}),
    "a receiver's token": lambda path: NotifySettings(token_file=str(path)).headers(),
    "certificates": lambda path: ends_of_certificates(str(path)),
    "the agent's configuration": FaultToleranceConfig.from_yaml_file,
    "rules of alerts": read_file,
    "a plan of faults": read_plan,
    "a plan of faults in CSV": lambda path: read_plan(path.rename(path.with_suffix(".csv"))),
    "timeouts": read_timeouts,
    "the step of a checkpoint": newest_step,
}


def bound(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a path of at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


CONTENTS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a socket": bound,
    "a directory": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a terabyte": sparse,
    "empty": Path.touch,
    "zeros": lambda path: path.write_bytes(bytes(100)),
    "not UTF-8": lambda path: path.write_bytes(b"a: \xff\n"),
    "a list that is nested": lambda path: path.write_text("[" * NESTED + "]" * NESTED),
    "a mapping that is nested": lambda path: path.write_text('{"a": ' * NESTED),
    "blocks that are nested": lambda path: path.write_text("- " * NESTED),
    "an integer of 5,000 digits": lambda path: path.write_text(f"a: {DIGITS}\n"),
    "JSON of 5,000 digits": lambda path: path.write_text(f'{{"a": {DIGITS}}}'),
    "a limit of 5,000 digits": lambda path: path.write_text(
        f"ingest a token:{'x' * 20} max_runs={DIGITS}"
    ),
    "a user of 5,000 digits": lambda path: path.write_text(f"admin a uid:{DIGITS}"),
    "a date that is none": lambda path: path.write_text("a: 2026-13-45\n"),
    "a billion laughs": lambda path: path.write_text(
        "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    ),
    "an alias of itself": lambda path: path.write_text("a: &a [*a]\n"),
    "a key that is a list": lambda path: path.write_text("? [a, b]\n: c\n"),
}  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_reader_of_a_small_file_ends_with_a_sentence(
    tmp_path: Path, read: Reader, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "small.yaml"
    make(path)
    try:
        read(path)
    except (StragglerError, OSError, ValueError) as error:
        assert len(str(error)) < 3_000  # noqa: PT017  it may also be accepted
        assert isinstance(error, StragglerError | OSError) or str(path) in str(error)  # noqa: PT017


@pytest.mark.parametrize("name", ["a pipe", "a socket", "a directory", "a device"])
@pytest.mark.parametrize("follow", [False, True])
def test_what_is_no_file_is_never_read_whether_links_are_followed_or_not(
    tmp_path: Path, name: str, *, follow: bool
) -> None:
    path = tmp_path / "file"
    CONTENTS[name](path)
    with pytest.raises(UnsafeFileError, match="it is a"):
        read_small_text(path, follow=follow)


def test_a_link_is_followed_where_the_user_has_named_it(tmp_path: Path) -> None:
    """As Kubernetes mounts tokens and settings."""
    (tmp_path / "..data").write_text("token-of-the-day")
    (tmp_path / "token").symlink_to("..data")
    headers = token_headers({TOKEN_VARIABLE: str(tmp_path / "token")})
    assert reveal(headers["Authorization"]) == "Bearer token-of-the-day"
    with pytest.raises(UnsafeFileError, match="a symbolic link"):
        read_small_text(tmp_path / "token")


BAD_JSON = [
    "", "{", "nul", "[" * NESTED, '{"a":' * NESTED, "[" * 65 + "]" * 65, DIGITS, f"[-{DIGITS}]",
    "NaN", "[Infinity]", "[-Infinity]", "1e999", "-1e999", "\ufeff{}", b"\xff",
    "{}".encode("utf-16"), b"{}\0", "{} {}", '"\n"', "{'a': 1}", "[1,]", "01",
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_JSON, ids=lambda body: repr(body)[:20])
def test_what_is_no_json_within_limits_is_one_error(body: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(body)


@given(body=damaged([b'{"a": [1, -2.5e3, "\\u00e9", null, true], "b": {"c": 12345678901}}']))
def test_damaged_json_is_a_value_or_one_error(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_json(body, unique_keys=True)


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(value=VALUES)
def test_what_we_write_is_read(value: Any) -> None:
    assert parse_json(json.dumps(value), unique_keys=True) == value


def test_sizes_are_compared_before_anything_is_parsed() -> None:
    with pytest.raises(ValueError, match="101 bytes; expected at most 100"):
        parse_json(b" " * 101, 100)


@pytest.mark.parametrize("text", ["²", "٣", "-1", "+1", "1_000", " 1", "1.0", "", DIGITS, "9" * 19])
def test_other_digits_are_no_number(text: str) -> None:
    assert whole_number(text) is None
    assert count(0, 10).read(text) == text
    assert exit_failure(f"exit_{text}") is None


@pytest.mark.parametrize("digits", [309, 400, 4_000])
def test_an_integer_that_is_no_float_is_no_number(digits: int) -> None:
    """An age of 400 digits was an error 500."""
    assert not is_number(10**digits)
    body = f'{{"age_s": {"9" * digits}}}'.encode()
    with pytest.raises(StragglerError):
        JsonBody(body, "Send another.").number("age_s", 0, 1e9, "an age")


def test_digits_of_a_port_and_an_event_are_bounded() -> None:
    with pytest.raises(StragglerError, match="with a port of 0 to 65535"):
        parse_address(f"localhost:{DIGITS}", where="x")
    with pytest.raises(StragglerError, match="It is not used"):
        parse_event(f'{{"name": "straggler.attempt.started", "attempt": {DIGITS}}}')
