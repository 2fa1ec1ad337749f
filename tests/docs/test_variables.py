"""Every environment variable that the reference page names is read, in the order it gives."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import configuration_page
import pytest
from described import Undescribed, defaults_of

from otel_straggler import configure
from otel_straggler.client import endpoints
from otel_straggler.client.settings import resolve_settings
from otel_straggler.config import (
    OF_ARGUMENTS,
    OF_DETECTOR,
    OF_PROCESS,
    WITHOUT_ARGUMENT,
    all_variables,
)
from otel_straggler.detector import Detector
from otel_straggler.setting import Setting, Variable

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
ORDERS = (*OF_ARGUMENTS, *WITHOUT_ARGUMENT)


def settled(env: dict[str, str], caplog: pytest.LogCaptureFixture) -> tuple[object, list[str]]:
    """The settings, and what was logged on the way."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        return resolve_settings({}, env), list(caplog.messages)


def variables(order: Setting) -> list[Variable]:
    return [source for source in order.sources if isinstance(source, Variable)]


@pytest.mark.parametrize(
    ("order", "variable"),
    [pytest.param(o, v, id=f"{o.name}-{v.name}") for o in ORDERS for v in variables(o)],
)
def test_every_variable_of_the_page_has_an_effect(
    order: Setting, variable: Variable, caplog: pytest.LogCaptureFixture
) -> None:
    """Set to its example it changes the settings, or says in the log why it is not followed."""
    without = dict(variable.needs)
    with_it = {**without, variable.name: variable.example}
    assert settled(with_it, caplog) != settled(without, caplog)
    assert f"`{variable.name}`" in PAGE


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.name)
def test_the_first_variable_of_an_order_wins(
    order: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """With all of them set the settings are those of the first alone, for each signal."""
    for own, other in (("TRACES_", "METRICS_"), ("METRICS_", "TRACES_")):
        chain = [v for v in variables(order) if other not in v.name and not v.needs]
        for at, variable in enumerate(chain):
            first = {variable.name: variable.example}
            later = {v.name: v.example for v in reversed(chain[at:])}
            of_signal = own.removesuffix("_").lower()
            assert _compared(first, of_signal, caplog) == _compared(later, of_signal, caplog)


def _compared(env: dict[str, str], signal: str, caplog: pytest.LogCaptureFixture) -> object:
    settings: Any = settled(env, caplog)[0]
    names = (n for n in settings.__slots__ if n not in {"traces", "metrics", "resource"})
    return getattr(settings, signal), {name: getattr(settings, name) for name in names}


@pytest.mark.parametrize("order", OF_ARGUMENTS, ids=lambda order: order.name)
def test_a_variable_of_ours_gives_what_the_argument_gives(order: Setting) -> None:
    """And the argument wins over it."""
    own = next((v for v in variables(order) if v.name.startswith("OTEL_STRAGGLER_")), None)
    if own is None or order.name == "headers":
        return
    value: Any = float(own.example) if order.name.endswith(("_s", "_overhead")) else own.example
    value = own.example == "true" if order.name == "page" else value
    by_argument = resolve_settings({order.name: value}, {})
    assert resolve_settings({}, {own.name: own.example}) == by_argument
    other = {own.name: "http://other"}
    assert resolve_settings({order.name: value}, other) == by_argument


def test_the_detector_reads_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoint, role and the collector's pages."""
    for order in OF_DETECTOR:
        for variable in variables(order):
            monkeypatch.setenv(variable.name, variable.example)
    Detector.initialize(report_from="collector")
    state: Any = Detector._state
    assert state._owns_session, "an endpoint begins a session"
    assert state.window._reporter._settings.role == "actor"
    assert state.collected.url == "http://collector:9464"


def test_a_variable_that_is_read_but_not_described_stops_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sentence names it and where to describe it."""

    def more(env: Any, *args: Any, **kwargs: Any) -> Any:
        env.get("OTEL_STRAGGLER_NEW")
        return endpoints.resolve_endpoints(env, *args, **kwargs)

    monkeypatch.setattr("otel_straggler.client.settings.resolve_endpoints", more)
    with pytest.raises(Undescribed, match=r"OTEL_STRAGGLER_NEW is read .*config\.py"):
        configuration_page.page()


def test_every_variable_of_ours_that_the_code_names_is_on_the_page() -> None:
    """Also those that nobody resolves by name, as in messages."""
    assert _named_in(ROOT.glob("otel_straggler/**/*.py")) <= _named_in(
        [ROOT / "docs" / "reference" / "configuration.md"]
    )


def _named_in(files: Iterable[Path]) -> set[str]:
    texts = (file.read_text(encoding="utf-8") for file in files)
    return {n for text in texts for n in re.findall(r"OTEL_STRAGGLER_[A-Z_]*[A-Z]", text)}


def test_every_argument_is_on_the_page_with_its_meaning() -> None:
    """Of configure() and of Detector.initialize()."""
    _, _, detector = PAGE.partition("## `Detector.initialize()`")
    for function, part in ((configure, PAGE), (Detector.initialize, detector)):
        for name in defaults_of(function):
            assert re.search(rf"^\| `{name}` \|.*\| [^|]{{10,}} \|$", part, re.MULTILINE), name


def test_no_variable_stands_there_for_nothing() -> None:
    """What is described is what is looked at."""
    read = configuration_page.variables_read()
    elsewhere = {v.name for order in (*OF_DETECTOR, *OF_PROCESS) for v in variables(order)}
    assert {v.name for v in all_variables()} <= read | elsewhere
