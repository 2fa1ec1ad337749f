"""Which form of the package is at work, and what becomes of a wish that cannot be fulfilled."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from otel_straggler import native
from otel_straggler.errors import ConfigError


def test_a_wish_for_plain_python_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was built."""
    monkeypatch.setenv(native.VARIABLE, "off")
    assert native.load() == (None, "OTEL_STRAGGLER_NATIVE is off")
    native.check_requested()


def test_without_the_extension_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there was no compiler."""
    monkeypatch.setitem(sys.modules, "otel_straggler._native", None)
    module, reason = native.load()
    assert module is None
    assert reason.startswith("it cannot be imported (")


def test_a_wish_that_cannot_be_fulfilled_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At configure(), never at import."""
    monkeypatch.setattr(native, "NATIVE", None)
    monkeypatch.setattr(native, "REASON", "it cannot be imported (no file)")
    monkeypatch.setenv(native.VARIABLE, "required")
    with pytest.raises(ConfigError, match=r"required.*it cannot be imported"):
        native.check_requested()
    monkeypatch.setenv(native.VARIABLE, "yes")
    with pytest.raises(ConfigError, match="'yes'; expected one of auto, off, required"):
        native.check_requested()


def test_a_missing_extension_is_one_line_about_what_is_slower(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for a process, and not where somebody has turned it off."""
    monkeypatch.setattr(native, "NATIVE", None)
    monkeypatch.setattr(native, "REASON", "it cannot be imported (no file)")
    monkeypatch.setenv(native.VARIABLE, "off")
    native.warn_if_missing.cache_clear()
    native.warn_if_missing()
    assert caplog.messages == []
    monkeypatch.delenv(native.VARIABLE)
    native.warn_if_missing.cache_clear()
    native.warn_if_missing()
    native.warn_if_missing()
    (line,) = caplog.messages
    assert "missing (it cannot be imported (no file))" in line
    assert "a section takes about 9 times as long" in line
    assert "`otel-straggler doctor` says how to install it" in line
    native.warn_if_missing.cache_clear()


def test_an_extension_of_another_layout_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file left behind by another version would be read wrongly."""
    extension = pytest.importorskip(
        "otel_straggler._native",
        reason="the extension was not built: it would show that another layout is noticed",
    )
    monkeypatch.setattr(extension, "RECORD_BYTES", 64)
    module, reason = native.load()
    assert module is None
    assert "(1, 64), not (1, 128)" in reason


def test_an_extension_of_older_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a checkout that was updated and not built again: importing never fails."""
    extension = pytest.importorskip(
        "otel_straggler._native",
        reason="the extension was not built: it would show that an old one is noticed",
    )
    monkeypatch.delattr(extension, "SpanEncoder")
    module, reason = native.load()
    assert module is None
    assert reason == "it was built from older sources, without SpanEncoder"


def test_the_stub_names_what_the_extension_has() -> None:
    """Neither more nor less, so what is typed is what can be called."""
    extension = pytest.importorskip(
        "otel_straggler._native",
        reason="the extension was not built: it would show that its typed face is its own",
    )
    stub = Path(native.__file__).with_name("_native.pyi").read_text()
    typed = re.findall(r"^(?:class |def )?(\w+)[:(]", stub, re.MULTILINE)
    assert sorted(typed) == sorted(name for name in vars(extension) if not name.startswith("__"))
