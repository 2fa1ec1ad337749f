"""Settings of a collector that the pages and the log name are tried with ``collector --check``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from otel_straggler.cli.group import otel_straggler
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.setting import rows_of, sections_of

from ..servers.certificate import make_certificate
from .pages import PAGES, ROOT, fences, text_of

SECTIONS = sections_of(CollectorSettings)
_NAME = rf"(?:{'|'.join(SECTIONS)})\.[a-z_]+(?:\.[a-z_]+)?"
_NAMED = re.compile(rf"(?<![\w./`-])`({_NAME})(?:: ([^`]+))?`")
_FILES = ("alerts.notify", "history.db", "forward.run", "log.py")
"""A section; files and a function that are named as settings would be."""

BESIDE = {"tls.require_client_cert": {"cert_file": "both.pem", "client_ca_file": "cert.pem"}}
"""What a value needs next to it."""


def defaults(section: type = CollectorSettings, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting, "section.key", with its default."""
    for key, row in rows_of(section).items():
        yield f"{before}{key}", row.default
    for name, inner in sections_of(section).items():
        yield from defaults(inner, f"{before}{name}.")


DEFAULTS = dict(defaults())


def named_on_pages() -> Iterator[tuple[str, str, Any]]:
    """Page, setting, and its value if the page has one, else the default."""
    for page in PAGES:
        for name, value in _NAMED.findall(text_of(page)):
            if name not in _FILES:
                shown = yaml.safe_load(value) if value else DEFAULTS.get(name)
                yield str(page.relative_to(ROOT)), name, shown


def named_in_the_code() -> Iterator[tuple[str, str, Any]]:
    """Module and each setting that its texts and docstrings name."""
    for file in sorted((ROOT / "otel_straggler").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for name in re.findall(rf"(?<![\w./])({_NAME})(?![\w(])", node.value):
                    if name not in _FILES:
                        yield str(file.relative_to(ROOT)), name, DEFAULTS.get(name)


def checked(document: dict[str, Any], folder: Path) -> str:
    """What ``--check`` says of it; empty if a collector would start."""
    file = folder / "collector.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    done = CliRunner().invoke(otel_straggler, ["collector", "--config", str(file), "--check"])
    return "" if done.exit_code == 0 else f"{done.output}{done.exception or ''}"


@pytest.mark.parametrize("named", [named_on_pages, named_in_the_code], ids=["pages", "code"])
def test_every_setting_that_is_named_is_one(
    named: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the value next to it, or its default."""
    monkeypatch.chdir(make_certificate(tmp_path, days=1, untried="tls.require_client_cert"))
    refused = {}
    tried: dict[tuple[str, str], str] = {}
    for where, name, value in named():
        key = name, repr(value)
        if key not in tried:
            *sections, last = name.split(".")
            document = {
                last: list(value) if type(value) is tuple else value,
                **BESIDE.get(name, {}),
            }
            for section in reversed(sections):
                document = {section: document}
            tried[key] = checked(document, tmp_path)
        if tried[key]:
            refused[f"{where}: {name}"] = tried[key]
    assert len(tried) > 15
    assert refused == {}


def settings_files() -> Iterator[Any]:
    """The YAML of the pages that is a collector's file."""
    for page in PAGES:
        for number, text in enumerate([*fences(page, "yaml"), *fences(page, "")]):
            try:
                document = yaml.safe_load(text)
            except yaml.YAMLError:
                continue
            is_ours = isinstance(document, dict) and document.keys() <= SECTIONS.keys()
            if is_ours and all(isinstance(section, dict) for section in document.values()):
                yield pytest.param(document, id=f"{page.relative_to(ROOT)}:{number}")


@pytest.mark.parametrize("document", list(settings_files()))
def test_every_file_of_settings_on_a_page_makes_a_collector_that_would_start(
    document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With files in the place of those that it names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_STRAGGLER_COMMANDS_TOKEN", "0123456789abcdef0123456789abcdef")
    if "tls" in document:
        make_certificate(tmp_path, days=1, untried="the file of settings")
        document = {**document, "tls": dict.fromkeys(document["tls"], "both.pem")}
    if "auth" in document:
        Path("grants").write_text("read people token:0123456789abcdef\n", encoding="utf-8")
        document = {**document, "auth": {**document["auth"], "grant_files": ["grants"]}}
    assert checked(document, tmp_path) == ""
