"""All alerts, once: what is rendered, and what the collector evaluates, are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from otel_straggler.alerts.hang_rules import HANG_RULES
from otel_straggler.alerts.platform_rules import PLATFORM_RULES
from otel_straggler.alerts.rule import AlertRule
from otel_straggler.alerts.score_rules import SCORE_RULES

GROUPS: Final[Mapping[str, tuple[AlertRule, ...]]] = {
    "hangs": HANG_RULES,
    "scores": SCORE_RULES,
    "platform": PLATFORM_RULES,
}
CATALOGUE: Final[tuple[AlertRule, ...]] = tuple(rule for rules in GROUPS.values() for rule in rules)
NAMES: Final[tuple[str, ...]] = tuple(dict.fromkeys(rule.name for rule in CATALOGUE))
