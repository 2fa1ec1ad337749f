"""What people read: one text, written by Prometheus' templates and by the collector alike.

A text is plain but for two signs. ``{name}`` is a label, a fact or the value; ``{name|form}``
writes it in a form of :data:`FORMS`. ``[...]`` is left out if something named in it is empty or not
known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_straggler.alerts.humanized import humanize_duration, humanize_percentage
from otel_straggler.model.verdict import CAUSES, NEXT_ACTION, Cause
from otel_straggler.semconv import Metric

VALUE: Final = "value"
Facts = Mapping[str, float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A fact that no label holds; in Prometheus another series tells it.

    Attributes:
        metric: which series.
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
    """An action of Go's templates that asks for ``expression``.

    Args:
        expression: with ``{}`` after every metric whose labels ``of`` are to be those of the alert.
        more: further matchers there.
    """
    matchers = "{" + ", ".join([f"{name}=%q" for name in of] + [more] * bool(more)) + "}"
    text = expression.replace("{}", matchers)
    arguments = " ".join(f"$labels.{name}" for name in of * expression.count("{}"))
    return f"printf `{text}` {arguments} | query"


@dataclass(frozen=True, slots=True)
class _Form:
    """How a number or a word is written."""

    in_go: Callable[[str], str]
    in_python: Callable[[float | str], str]


def _number(function: Callable[[float], str]) -> Callable[[float | str], str]:
    return lambda value: function(float(value))


def _words(table: Mapping[Cause, str]) -> _Form:
    """A word that stands for another; one that is not in the table stands for itself."""

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
    "percent": _Form(
        lambda name: f"{{{{ {name} | humanizePercentage }}}}", _number(humanize_percentage)
    ),
    "duration": _Form(
        lambda name: f"{{{{ {name} | humanizeDuration }}}}", _number(humanize_duration)
    ),
    "count": _Form(lambda name: f'{{{{ printf "%.0f" {name} }}}}', _number("{:.0f}".format)),
    "ratio": _Form(lambda name: f'{{{{ printf "%.2f" {name} }}}}', _number("{:.2f}".format)),
    "cause": _words(CAUSES),
    "action": _words(NEXT_ACTION),
}
_PART: Final = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_NAME: Final = re.compile(r"\{(\w+)(?:\|(\w+))?\}")


@dataclass(frozen=True, slots=True)
class Sentence:
    """See above.

    Attributes:
        text: the template.
        facts: what names in it are neither labels nor the value, and where they are found. A fact
            stands in brackets, alone or with labels, because it may be missing.
    """

    text: str
    facts: Mapping[str, Lookup] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "".join(whole for whole, _, _ in self._parts()) != self.text:
            raise ValueError(f"brackets of {self.text!r} do not match")
        for _, text, is_optional in self._parts():
            names = {match[1] for match in _NAME.finditer(text)}
            facts = names & set(self.facts)
            if len(facts) > 1 or (facts and not is_optional):
                raise ValueError(f"{text!r}: a fact stands in brackets of its own")

    @property
    def names(self) -> frozenset[str]:
        """Labels that the text uses."""
        names = {match[1] for match in _NAME.finditer(self.text)}
        return frozenset(names - set(self.facts) - {VALUE})

    # --- Prometheus ------------------------------------------------------------------------------

    def in_go(self) -> str:
        """As a template of a rule's annotation."""
        return "".join(
            self._optional_in_go(text) if is_optional else self._plain_in_go(text)
            for _, text, is_optional in self._parts()
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

    # --- Python ----------------------------------------------------------------------------------

    def render(self, labels: Mapping[str, str], value: float, facts: Facts | None = None) -> str:
        """The same text. Labels and facts that are absent are empty."""
        known: dict[str, float | str] = {**labels, **(facts or {}), VALUE: value}
        return "".join(
            _plain(text, known)
            for _, text, is_optional in self._parts()
            if not is_optional or _is_known(text, known)
        )

    def _parts(self) -> Iterator[tuple[str, str, bool]]:
        """What stands there, without its brackets, and whether it may be left out."""
        for match in _PART.finditer(self.text):
            if match[2] is None:
                yield match[0], match[1], True
            else:
                yield match[0], match[2], False


def _is_known(text: str, known: Mapping[str, float | str]) -> bool:
    return all(known.get(match[1], "") != "" for match in _NAME.finditer(text))


def _plain(text: str, known: Mapping[str, float | str]) -> str:
    return _NAME.sub(lambda match: FORMS[match[2] or ""].in_python(known.get(match[1], "")), text)
