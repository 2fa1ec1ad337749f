"""Messages and links of alerts, as Prometheus' templates and from Python: the same to the letter.

``{name}`` is a label, a fact or the value; ``{name|form}`` writes it in a form of :data:`FORMS`.
``[...]`` is left out if something named in it is empty or unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Final
from urllib.parse import quote

from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.model.causes import CAUSES, Cause
from otel_straggler.semconv import RUNBOOK_PATH, Metric

VALUE: Final = "value"
Facts = Mapping[str, float | str]

# --- numbers -------------------------------------------------------------------------------------


def humanize(value: float) -> str:
    """A number with a metric prefix, as in Prometheus' templates.

    >>> humanize(1234567.0), humanize(0.0021), humanize(0.0)
    ('1.235M', '2.1m', '0')
    """
    if value == 0 or not math.isfinite(value):
        return _short(value)
    prefix = ""
    if abs(value) >= 1:
        for larger in "kMGTPEZY":
            if abs(value) < 1_000:
                break
            prefix, value = larger, value / 1_000
    else:
        for smaller in "munpfazy":
            if abs(value) >= 1:
                break
            prefix, value = smaller, value * 1_000
    return _short(value) + prefix


def humanize_percentage(value: float) -> str:
    """
    >>> humanize_percentage(0.5), humanize_percentage(0.12345678)
    ('50%', '12.35%')
    """
    return f"{_short(value * 100)}%"


def humanize_duration(value_s: float) -> str:
    """
    >>> humanize_duration(300.0), humanize_duration(97_265.0), humanize_duration(0.25)
    ('5m 0s', '1d 3h 1m 5s', '250ms')
    """
    if not math.isfinite(value_s):
        return _short(value_s)
    if abs(value_s) < 1:
        return humanize(value_s) + "s"
    sign, whole = "-" if value_s < 0 else "", int(abs(value_s))
    days, hours, minutes = whole // 86_400, whole // 3_600 % 24, whole // 60 % 60
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {whole % 60}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {whole % 60}s"
    if minutes:
        return f"{sign}{minutes}m {whole % 60}s"
    return f"{sign}{_short(abs(value_s))}s"


def humanize_timestamp(at_s: float) -> str:
    """To the second.

    >>> humanize_timestamp(1_764_275_000.0)
    '2025-11-27 20:23:20 +0000 UTC'
    """
    return f"{datetime.fromtimestamp(round(at_s), timezone.utc):%Y-%m-%d %H:%M:%S} +0000 UTC"


def _short(value: float) -> str:
    """Go's %.4g."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.4g}"


# --- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A fact that no label holds; in Prometheus it is looked up in another series.

    Attributes:
        of: labels that it shares with the alert.
        label: the label that is the fact; empty: the value of the series.
        more: further matchers.
    """

    metric: Metric
    of: tuple[str, ...]
    label: str = ""
    more: str = ""

    def query(self) -> str:
        """An action of Go's templates that finds the series."""
        by = f" by ({self.label})" if self.label else ""
        return query_of(f"max{by} ({self.metric.prometheus_name}{{}})", self.of, self.more)


def query_of(expression: str, of: tuple[str, ...], more: str = "") -> str:
    """An action of Go's templates that queries ``expression``.

    Args:
        expression: with ``{}`` after every metric that is to have the alert's labels ``of``.
        more: further matchers there.
    """
    matchers = "{" + ", ".join([f"{name}=%q" for name in of] + [more] * bool(more)) + "}"
    text = expression.replace("{}", matchers)
    arguments = " ".join(f"$labels.{name}" for name in of * expression.count("{}"))
    return f"printf `{text}` {arguments} | query"


@dataclass(frozen=True, slots=True)
class _Form:
    """Format of a number or a label."""

    in_go: Callable[[str], str]
    in_python: Callable[[float | str], str]


def _number(go: str, function: Callable[[float], str]) -> _Form:
    return _Form(lambda name: "{{ " + go.format(name) + " }}", lambda value: function(float(value)))


def _phrases(table: Mapping[Cause, str]) -> _Form:
    """Phrases for words; a word that is not in the table stands for itself."""

    def in_go(name: str) -> str:
        cases = "".join(
            f'{{{{ {"else if" if n else "if"} eq {name} "{word}" }}}}{text}'
            for n, (word, text) in enumerate(table.items())
        )
        return f"{cases}{{{{ else }}}}{{{{ {name} }}}}{{{{ end }}}}"

    texts: dict[str, str] = dict(table.items())
    return _Form(in_go, lambda value: texts.get(str(value), str(value)))


FORMS: Final[Mapping[str, _Form]] = {
    "": _Form(lambda name: f"{{{{ {name} }}}}", str),
    "none": _Form(lambda name: f'{{{{ or {name} "none" }}}}', lambda value: str(value) or "none"),
    "percent": _number("{} | humanizePercentage", humanize_percentage),
    "duration": _number("{} | humanizeDuration", humanize_duration),
    "time": _number('printf "%.0f" {} | humanizeTimestamp', humanize_timestamp),
    "count": _number('printf "%.0f" {}', "{:.0f}".format),
    "ratio": _number('printf "%.2f" {}', "{:.2f}".format),
    "cause": _phrases({cause: info.name for cause, info in CAUSES.items()}),
    "action": _phrases({cause: info.action for cause, info in CAUSES.items()}),
}
_PART: Final = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_NAME: Final = re.compile(r"\{(\w+)(?:\|(\w+))?\}")


@dataclass(frozen=True, slots=True)
class Message:
    """Text of an alert.

    Attributes:
        facts: names that are neither labels nor the value, and where they are looked up. A fact is
            in brackets, alone or with labels, because it may be missing.
    """

    text: str
    facts: Mapping[str, Lookup] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "".join(match[0] for match in _PART.finditer(self.text)) != self.text:
            raise ValueError(f"brackets of {self.text!r} do not match")
        for text, is_optional in self._parts():
            facts = _names(text) & set(self.facts)
            if len(facts) > 1 or (facts and not is_optional):
                raise ValueError(f"{text!r}: a fact stands in brackets of its own")

    @property
    def labels(self) -> frozenset[str]:
        """Labels that the text uses."""
        return frozenset(_names(self.text) - set(self.facts) - {VALUE})

    def in_go(self) -> str:
        """The message as a template of a rule's annotation."""
        return "".join(
            self._optional_in_go(text) if is_optional else self._plain_in_go(text)
            for text, is_optional in self._parts()
        )

    def _optional_in_go(self, text: str) -> str:
        names = list(dict.fromkeys(match[1] for match in _NAME.finditer(text)))
        inner = self._plain_in_go(text)
        for name in names:
            if name in self.facts:
                inner = f"{{{{ with {self.facts[name].query()} }}}}{inner}{{{{ end }}}}"
        labels = [f"$labels.{name}" for name in names if name not in self.facts and name != VALUE]
        if not labels:
            return inner
        condition = labels[0] if len(labels) == 1 else "and " + " ".join(labels)
        return f"{{{{ if {condition} }}}}{inner}{{{{ end }}}}"

    def _plain_in_go(self, text: str) -> str:
        return _NAME.sub(lambda match: FORMS[match[2] or ""].in_go(self._go_name(match[1])), text)

    def _go_name(self, name: str) -> str:
        if name == VALUE:
            return "$value"
        if name not in self.facts:
            return f"$labels.{name}"
        label = self.facts[name].label
        return f'(. | first | label "{label}")' if label else "(. | first | value)"

    def outline(self) -> str:
        """The text without what is optional, with names in place of values.

        >>> Message("Rank {rank}[ on {node}] slows down run {run_id}").outline()
        'Rank RANK slows down run RUN_ID'
        """
        return "".join(
            _NAME.sub(lambda match: match[1].upper(), text)
            for text, is_optional in self._parts()
            if not is_optional
        )

    def render(self, labels: Mapping[str, str], value: float, facts: Facts | None = None) -> str:
        """The same text. Absent labels and facts are empty."""
        known: dict[str, float | str] = {**labels, **(facts or {}), VALUE: value}

        def written(match: re.Match[str]) -> str:
            return FORMS[match[2] or ""].in_python(known.get(match[1], ""))

        return "".join(
            _NAME.sub(written, text)
            for text, is_optional in self._parts()
            if not is_optional or all(known.get(name, "") != "" for name in _names(text))
        )

    def _parts(self) -> Iterator[tuple[str, bool]]:
        """Pieces without their brackets, and whether they are optional."""
        for match in _PART.finditer(self.text):
            yield (match[2], False) if match[1] is None else (match[1], True)


def _names(text: str) -> set[str]:
    return {match[1] for match in _NAME.finditer(text)}


# --- links ---------------------------------------------------------------------------------------

_ON_PAGE: Final = ("cluster", "run_id", "group", "rank", "node")
"""Labels that are variables of a dashboard, and that silence an alert about a run."""
_LAST_HOUR: Final = "from=now-1h&to=now"
_ESCAPED: Final = '{{ reReplaceAll "[+]" "%20" (urlquery .) }}'
_ESCAPED_TWICE: Final = (
    r'{{ reReplaceAll "[+]" "%20" (urlquery (reReplaceAll "([\"\\\\])" "\\$1" .)) }}'
)


def links_in_go(name: str, labels: Collection[str], settings: AlertSettings) -> dict[str, str]:
    """Templates of the links of an alert, by annotation; links without a target are left out."""

    def pair(label: str, key: str, end: str, is_quoted: bool) -> str:
        value = _ESCAPED_TWICE if is_quoted else _ESCAPED
        return f"{{{{ with $labels.{label} }}}}{key}{value}{end}{{{{ end }}}}"

    return _links(name, labels, settings, pair)


def links(
    name: str, labels: Collection[str], settings: AlertSettings, values: Mapping[str, str]
) -> dict[str, str]:
    """The same for the label values of one alert."""

    def pair(label: str, key: str, end: str, is_quoted: bool) -> str:
        value = values.get(label, "")
        if is_quoted:
            value = value.replace("\\", "\\\\").replace('"', '\\"')
        return f"{key}{quote(value, safe='')}{end}" if value else ""

    return _links(name, labels, settings, pair)


def _links(
    name: str,
    labels: Collection[str],
    settings: AlertSettings,
    pair: Callable[[str, str, str, bool], str],
) -> dict[str, str]:
    """``pair`` writes a label with its value between two texts, or nothing."""
    carried = set(labels) if "instance" in labels else {"cluster", "collector", *labels}
    result = {}
    if (url := settings.page_url.rstrip("/")) and "run_id" in labels:
        group = pair("group", "&group=", "", False) if "group" in labels else ""
        result["page_url"] = f"{url}/#{pair('run_id', 'run=', '', False)}{group}"
    if settings.runbook_url:
        result["runbook_url"] = f"{settings.runbook_url}#{name.lower()}"
    elif url:
        result["runbook_url"] = f"{url}{RUNBOOK_PATH}?alert={name}"
    if url := settings.dashboard_url:
        chosen = (pair(n, f"&var-{n}=", "", False) for n in _ON_PAGE if n in carried)
        result["dashboard_url"] = f"{url}{'&' if '?' in url else '?'}{_LAST_HOUR}{''.join(chosen)}"
    if url := settings.alertmanager_url.rstrip("/"):
        of_collector = ("cluster", "collector", "instance", *_ON_PAGE[1:])
        silenced = _ON_PAGE if "run_id" in labels else of_collector
        chosen = (pair(n, f"%2C{n}%3D%22", "%22", True) for n in silenced if n in carried)
        matchers = f"alertname%3D%22{name}%22{''.join(chosen)}"
        result["silence_url"] = f"{url}/#/silences/new?filter=%7B{matchers}%7D"
    return result
