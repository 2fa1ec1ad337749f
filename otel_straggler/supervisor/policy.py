"""What to do about which cause: rules, their limits, and how a file says it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from otel_straggler.errors import ConfigError
from otel_straggler.model.fleet_reports import REPORT_KINDS
from otel_straggler.setting import (
    ANY_TEXT,
    above,
    choice,
    integer,
    kind,
    number,
    option,
    read_section,
    text,
    texts,
)
from otel_straggler.supervisor.causes import Cause
from otel_straggler.supervisor.xids import SEVERITIES, Severity, severity_of

Action = Literal[
    "restart_in_job", "restart_workload", "replace_host", "scale_down", "scale_up", "cordon",
    "notify",
]  # fmt: skip
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
OF_RUN: Final[frozenset[Action]] = frozenset({"restart_in_job", "restart_workload"})
"""Actions that need the name of a run."""
TAKES_OUT: Final[frozenset[Action]] = frozenset({"replace_host", "scale_down", "cordon"})
"""Actions after which a host no longer works."""
ON_HOST: Final[frozenset[Action]] = TAKES_OUT | {"restart_in_job"}
"""Actions that act on the host of the cause, which the fleet has to know."""
NEEDS_SPARE: Final[frozenset[Action]] = frozenset({"replace_host", "scale_up"})
_DAY_S: Final = 86_400.0


def _is_pattern(value: object) -> bool:
    try:
        re.compile(value)  # type: ignore[call-overload]
    except (re.error, TypeError):
        return False
    return isinstance(value, str)


_PATTERN: Final = text("a regular expression", _is_pattern)
_PATTERNS: Final = kind(
    accepts=lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(key, str) for key in value)
        and all(map(_is_pattern, value.values()))
    ),
    expected="a mapping of label names to regular expressions in quotes",
    convert=lambda value: tuple(sorted(value.items())),
)
_REPORTS: Final = texts(f"a list of {', '.join(REPORT_KINDS)}", set(REPORT_KINDS).issuperset)
_SEVERITIES: Final = texts(f"a list of {', '.join(SEVERITIES)}", set(SEVERITIES).issuperset)
_LIST: Final = kind(accepts=lambda value: isinstance(value, list), expected="a list")
_XIDS: Final = kind(
    accepts=lambda value: (
        isinstance(value, Mapping)
        and all(type(key) is int and key > 0 for key in value)
        and set(SEVERITIES).issuperset(value.values())
    ),
    expected=f"a mapping of XIDs to one of {', '.join(SEVERITIES)}",
    convert=lambda value: tuple(sorted(value.items())),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. All of its conditions must hold; patterns match the whole text."""

    name: str = option("", ANY_TEXT, "in logs, spans and audit; the rule's number if empty")
    alert: str = option("", _PATTERN, "name of the alert")
    report: tuple[str, ...] = option((), _REPORTS, "kinds of reports")
    labels: tuple[tuple[str, str], ...] = option(
        (), _PATTERNS, "labels of the alert; of a report run_id, attempt, node, rank, reason"
    )
    xid: tuple[str, ...] = option(
        (), _SEVERITIES, "severities of the XID that the cause names; without one nothing matches"
    )
    action: Action = option("notify", choice(*ACTIONS), "what to do")  # noqa: RUF009 - as all others
    times: int = option(
        0,
        integer(0),
        "at most so often within `window_seconds`; then the next rule that matches. 0 = any number",
    )
    per: str = option(
        "run", choice("run", "host", "device", "fleet"), "what `times` is counted for"
    )
    window_s: float = option(_DAY_S, above(0), "for `times`")

    def matches(self, cause: Cause, xids: Mapping[int, Severity]) -> bool:
        """Whether all conditions hold."""
        if self.alert and not (cause.source == "alert" and _fits(self.alert, cause.name)):
            return False
        if self.report and not (cause.source == "report" and cause.name in self.report):
            return False
        if self.xid and (cause.xid is None or severity_of(cause.xid, xids) not in self.xid):
            return False
        return all(_fits(each, cause.labels.get(name, "")) for name, each in self.labels)


def _fits(pattern: str, value: str) -> bool:
    return re.fullmatch(pattern, value) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """What is done about which cause: the first rule that matches and may act."""

    rules: tuple[Rule, ...] = option((), _LIST, "see below; none = nothing is done")
    max_actions: int = option(
        6, integer(1), "of all rules within `window_seconds`; notify does not count"
    )
    window_s: float = option(3600.0, above(0), "for `max_actions`")
    max_fleet_share: float = option(
        0.1,
        number(0, 1),
        "of all hosts that may be failed or cordoned after an action that takes one out; one host "
        "may always be",
    )
    cooldown_s: float = option(
        300.0,
        number(0),
        "after an action nothing is done about the same code on the same device, nor is the same "
        "run restarted",
    )
    max_age_s: float = option(
        3600.0, above(0), "an older cause, and a decision that could not begin by then, is ignored"
    )
    xids: tuple[tuple[int, Severity], ...] = option(
        (), _XIDS, "severities that differ from NVIDIA's catalog, by XID"
    )
    severities: Mapping[int, Severity] = field(default_factory=dict, compare=False)


Policy = PolicySettings


def read_rules(policy: PolicySettings, where: str) -> PolicySettings:
    """The policy with its rules read; ``where`` comes before the names of settings.

    Raises:
        ConfigError: a field is unknown, a value is not accepted, or a rule matches everything.
    """
    rules = tuple(_rule(each, f"{where}rules[{n}]", n) for n, each in enumerate(policy.rules))
    return replace(policy, rules=rules, severities=dict(policy.xids))


def _rule(values: Any, where: str, index: int) -> Rule:
    rule = read_section(Rule, {} if values is None else values, where)
    if not (rule.alert or rule.report or rule.xid):
        expected = "at least one of alert, report and xid"
        remedy = "Say what it is about; '.*' of alert is every alert."
        raise ConfigError.of(where, "a rule about everything", expected, remedy)
    if rule.alert and rule.report:
        remedy = "Make two rules of it."
        raise ConfigError.of(where, "alert and report", "only one of them", remedy)
    if "action" not in values:
        remedy = "Name what to do."
        raise ConfigError.of(f"{where}.action", None, f"one of {', '.join(ACTIONS)}", remedy)
    return rule if rule.name else replace(rule, name=f"rule {index}")
