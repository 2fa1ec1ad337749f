"""How a process that fails says so: in its last heartbeat, and in torchelastic's error file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.client.failures import failure_of, write_error_file
from otel_straggler.testing import CapturedRequests

HEAD = """
import sys
import otel_straggler as ots
ots.configure(endpoint=sys.argv[1], run_id="r", rank=0, world_size=1, hardware="off")
"""
RAISES = 'raise ValueError("bad sample 17, token=abc\\nmore")'
NAMES = {
    "kind": semconv.FAILURE_KIND,
    "type": semconv.EXCEPTION_TYPE,
    "message": semconv.EXCEPTION_MESSAGE,
    "exit_code": semconv.EXIT_CODE,
}


def last_words(sink: CapturedRequests, body: str, **env: str) -> dict[str, Any]:
    """What the rank says of its failure with its end."""
    subprocess.run(
        [sys.executable, "-c", HEAD + body, sink.url],
        env={**os.environ, "OTEL_STRAGGLER_EXIT_DEADLINE_S": "20", **env},
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    end = sink.points(semconv.RANK_FINISHED)[-1]
    assert end.attributes["outcome"] == "failed"
    info = sink.points(semconv.RANK_INFO)[-1].attributes
    return {name: info[key] for name, key in NAMES.items() if key in info}


@pytest.mark.parametrize("native", ["auto", "off"])
def test_an_exception_is_sent_with_its_type_and_the_first_line_of_its_message(
    sink: CapturedRequests, native: str
) -> None:
    """Without what looks like a secret; and only the type where messages are kept back."""
    known = {"kind": "raised", "type": "ValueError"}
    message = {"message": "bad sample 17, token=***"}
    assert last_words(sink, RAISES, OTEL_STRAGGLER_NATIVE=native) == known | message
    off = {"OTEL_STRAGGLER_FAILURE_MESSAGES": "off", "OTEL_STRAGGLER_NATIVE": native}
    assert last_words(sink, RAISES, **off) == known


def test_an_exit_is_sent_with_its_code(sink: CapturedRequests) -> None:
    """Also that of ``raise SystemExit``, which is known only when the process exits."""
    assert last_words(sink, "sys.exit(3)") == {"kind": "exited", "exit_code": 3}
    assert last_words(sink, "raise SystemExit(4)")["exit_code"] == 4


def test_an_exit_because_of_a_lost_peer_says_so(sink: CapturedRequests) -> None:
    """The exception that was handled then is the reason."""
    body = """
try:
    raise ConnectionResetError("[Errno 104] Connection reset by peer")
except OSError:
    sys.exit(1)
"""
    assert last_words(sink, body)["kind"] == "lost_peer"


def test_an_exception_that_follows_from_that_of_a_lost_peer_is_one_of_it() -> None:
    try:
        try:
            raise RuntimeError("[../gloo/transport/tcp/pair.cc] Connection closed by peer")
        except RuntimeError as error:
            raise ValueError("no gradients") from error
    except ValueError as error:
        failure = failure_of(error)
    assert failure is not None
    assert (failure.kind, failure.type) == ("lost_peer", "RuntimeError")


def test_the_error_file_is_as_torch_writes_it_and_one_that_is_there_stays(tmp_path: Path) -> None:
    """torchelastic reads message and time."""
    env = {"TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")}
    write_error_file(SystemExit(1), env)
    assert not list(tmp_path.iterdir())
    write_error_file(ValueError("bad"), env)
    write_error_file(KeyError("later"), env)
    message = json.loads((tmp_path / "error.json").read_text())["message"]
    assert message["message"] == "ValueError: bad"
    assert int(message["extraInfo"]["timestamp"]) > 0
    torch_errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")
    read = torch_errors.ProcessFailure(0, 1, 1, env["TORCHELASTIC_ERROR_FILE"])
    assert read.message["message"] == "ValueError: bad"
