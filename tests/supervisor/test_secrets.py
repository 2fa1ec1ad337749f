"""No error of a webhook, a report, a command or a file of settings prints a secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.errors import StragglerError
from otel_straggler.supervisor.settings import load_settings

from .served import Served

SECRET = "hunter2-hunter2-hunter2"
URL = f"http://me:{SECRET}@prometheus/alerts"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    result = Served(tmp_path)
    yield result
    result.supervisor.stop()


BODIES: dict[str, Any] = {
    "a URL at the begin, cut": f'{{"externalURL": "{"x" * 60}{URL}", '.encode(),
    "a list with a URL": json.dumps([URL]).encode(),
    "a form": f"token={SECRET}&x=1".encode(),
    "a header": f"Authorization: Bearer {SECRET}\r\n\r\n{{}}".encode(),
    "a text": json.dumps(f"Bearer {SECRET}").encode(),
    "a wrong version": {"version": URL, "alerts": []},
    "a token as version": {"version": SECRET, "alerts": []},
    "no list of alerts": {"version": "4", "alerts": {"token": SECRET}},
    "alerts of one URL": {"version": "4", "alerts": URL},
    "a deep one": {"version": "4", "alerts": {"a": {"b": [f"Basic {SECRET}"]}}},
    "of another version, whole": {"version": {"password": SECRET}},
}
REPORTS: dict[str, Any] = {
    "a kind": {"kind": f"Bearer {SECRET}"},
    "a node": {"kind": "rank_hung", "id": "1", "run_id": "r", "node": [URL]},
    "an id": {"kind": "rank_hung", "id": {"api_key": SECRET}},
    "a rank": {"kind": "rank_hung", "id": "1", "run_id": "r", "node": "n", "rank": URL},
    "a long text": {"kind": "rank_hung", "id": "x" * 150 + URL * 3},
}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(pytest.param("/v1/alerts", body, id=name) for name, body in BODIES.items()),
        *(pytest.param("/v1/reports", body, id=name) for name, body in REPORTS.items()),
    ],
)
def test_what_cannot_be_read_is_not_repeated(
    served: Served, path: str, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in the answer, which Alertmanager logs, nor in ours."""
    caplog.set_level(logging.DEBUG)
    status, answer = served.ask("POST", path, body, role="admin")
    assert status == 400
    assert "expected" in answer["error"]
    assert "hunter2" not in answer["error"] + caplog.text


SHELL = "executor: {{shell: {{commands: {{dance: [{}]}}}}}}"
SETTINGS = {
    "a URL with a password": f"export: {{endpoint: '{URL}'}}",
    "one with a slash in it": f"export: {{endpoint: 'http://me:a/{SECRET}@h'}}",
    "one with a question mark": f"export: {{endpoint: 'http://me:a?{SECRET}@h'}}",
    "a token in place of its section": f"auth: 'token:{SECRET}'",
    "a grant in place of a file": f"auth: {{grant_files: 'ingest a token:{SECRET}'}}",
    "a section with a key that there is not": f"auth: [{{password: {SECRET}}}]",
    "a command with a header": SHELL.format(f"curl, -H, 'Authorization: Bearer {SECRET}'"),
    "one with a token": SHELL.format(f"x, '--token={SECRET}'"),
    "a variable with a header": f"server: {{listen: 'authorization=Bearer%20{SECRET}'}}",
    "a JWT": "server: {listen: eyJhbGciOi.hunter2hunter2.hunter2}",
    "an alias": f"state: {{path: *{SECRET}}}",
    "a tag": f"state: {{path: !{SECRET} x}}",
    "no YAML": f"state: {{path: '{URL}",
}


@pytest.mark.parametrize("text", SETTINGS.values(), ids=SETTINGS)
def test_a_wrong_setting_does_not_print_a_secret(tmp_path: Path, text: str) -> None:
    """The error says where it is."""
    path = tmp_path / "supervisor.yaml"
    path.write_text(f"{text}\n")
    with pytest.raises(StragglerError) as raised:
        load_settings(path)
    assert "hunter2" not in str(raised.value)
    assert "supervisor.yaml" in str(raised.value)
