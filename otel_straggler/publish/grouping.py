"""When a webhook is told what: alerts by run, as Alertmanager's groups do it. Time is an argument.

A group waits a little after its first alert, so that one trouble is one message; then it says what
is new at most every interval, what has ended once, and what goes on again after a long time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_straggler.model.alert import Alert
from otel_straggler.publish.alert_json import fingerprint, read_alert, saved_alert

GROUP_BY: Final = ("cluster", "job_name", "run_id")
"""One message is about one run, whatever its groups of ranks."""
_STATE_VERSION: Final = 1

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """Lengths in seconds, as in Alertmanager.

    Attributes:
        wait_s: from a group's first alert to its first message.
        interval_s: from a message to the next about the same group, if there is news.
        repeat_s: until a message is repeated without news.
        sends_resolved: whether ends are told,
        never_resolved: but not those of alerts with these names.
    """

    wait_s: float = 10.0
    interval_s: float = 120.0
    repeat_s: float = 14_400.0
    sends_resolved: bool = True
    never_resolved: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Message:
    """What a group has to say: those that fire, then those that have ended."""

    group: Key
    alerts: tuple[Alert, ...]

    @property
    def labels(self) -> dict[str, str]:
        return {name: value for name, value in zip(GROUP_BY, self.group, strict=True) if value}


@dataclass(slots=True)
class _Group:
    next_at_s: float
    firing: dict[str, Alert] = field(default_factory=dict)
    ended: dict[str, Alert] = field(default_factory=dict)
    told: dict[str, Alert] = field(default_factory=dict)
    sending: set[str] = field(default_factory=set)
    """Those that fire in the message under way; whether it reaches anybody is not known yet."""
    told_at_s: float = float("-inf")


class Groups:
    """All groups of one receiver. One thread owns it, or a lock.

    Args:
        rules: see above.
    """

    def __init__(self, rules: GroupRules) -> None:
        self._rules = rules
        self._groups: dict[Key, _Group] = {}

    def take(self, alerts: Iterable[Alert], now_s: float, unsaid: Iterable[Alert] = ()) -> None:
        """All that is to be told of and fires now, and what has ended since the last call.

        Args:
            alerts: these.
            now_s: any clock that only goes forward.
            unsaid: ended as well, but nobody is to be told so.
        """
        for alert in unsaid:
            for group in self._groups.values():
                group.told.pop(fingerprint(alert.labels), None)
                group.sending.discard(fingerprint(alert.labels))
        firing: dict[Key, dict[str, Alert]] = {}
        for alert in alerts:
            key = tuple(alert.labels.get(name, "") for name in GROUP_BY)
            if alert.ends_at_s is None:
                firing.setdefault(key, {})[fingerprint(alert.labels)] = alert
            elif key in self._groups:
                self._end(self._groups[key], alert)
        for key in [key for key in firing if key not in self._groups]:
            self._groups[key] = _Group(next_at_s=now_s + self._rules.wait_s)
        for key, group in self._groups.items():
            group.firing = firing.get(key, {})
            for again in group.firing.keys() & group.ended.keys():
                del group.ended[again]
        self._drop_silent()

    def _end(self, group: _Group, alert: Alert) -> None:
        key = fingerprint(alert.labels)
        if key not in group.told and key not in group.sending:
            return
        if self._rules.sends_resolved and alert.name not in self._rules.never_resolved:
            group.ended[key] = alert
        else:
            group.told.pop(key, None)
            group.sending.discard(key)

    def _drop_silent(self) -> None:
        """Groups of which nothing fires, and nothing more is to be said."""
        for key, group in list(self._groups.items()):
            if not (group.firing or group.told or group.sending):
                del self._groups[key]

    def due(self, now_s: float, *, is_last: bool = False) -> tuple[Message, ...]:
        """What is to be sent now, and then settled or put off. What ends until then is told to have
        ended after it.

        Args:
            is_last: also news that would have waited.
        """
        messages = []
        for key, group in self._groups.items():
            if now_s >= self._due_at_s(group) or (is_last and _has_news(group)):
                messages.append(Message(key, (*group.firing.values(), *group.ended.values())))
                group.sending = set(group.firing)
        return tuple(messages)

    def next_at_s(self) -> float:
        """The earliest time at which something may be due."""
        return min((self._due_at_s(g) for g in self._groups.values()), default=float("inf"))

    def _due_at_s(self, group: _Group) -> float:
        if _has_news(group):
            return group.next_at_s
        if group.firing:
            return max(group.next_at_s, group.told_at_s + self._rules.repeat_s)
        return float("inf")

    def settle(self, message: Message, now_s: float) -> None:
        """It has been said, or there is no use in saying it again."""
        group = self._groups.get(message.group)
        if group is None:
            return
        for alert in message.alerts:
            key = fingerprint(alert.labels)
            if key in group.sending:
                group.told[key] = alert
            elif alert.ends_at_s is not None:
                group.told.pop(key, None)
                if group.ended.get(key) is alert:
                    del group.ended[key]
        group.sending.clear()
        group.told_at_s = now_s
        group.next_at_s = now_s + self._rules.interval_s
        self._drop_silent()

    def put_off(self, message: Message, until_s: float) -> None:
        """It could not be said; not before ``until_s`` again."""
        group = self._groups.get(message.group)
        if group is None:
            return
        group.sending.clear()
        group.ended = {key: alert for key, alert in group.ended.items() if key in group.told}
        group.next_at_s = until_s
        self._drop_silent()

    # --- over restarts ---------------------------------------------------------------------------

    def state(self, now_s: float) -> dict[str, Any]:
        """What was told, in JSON's types; times as ages."""
        told = [
            {
                "group": list(key),
                "age_s": now_s - group.told_at_s,
                "told": [saved_alert(alert) for alert in group.told.values()],
                "ended": [saved_alert(alert) for alert in group.ended.values()],
            }
            for key, group in self._groups.items()
            if group.told
        ]
        return {"version": _STATE_VERSION, "groups": told}

    def restore(self, state: Mapping[str, Any], passed_s: float, now_s: float) -> None:
        """Go on from :meth:`state`, which is ``passed_s`` old.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        if state["version"] != _STATE_VERSION:
            msg = f"version {state['version']!r}"
            raise ValueError(msg)
        groups = {}
        for saved in state["groups"]:
            told, ended = ([read_alert(one) for one in saved[part]] for part in ("told", "ended"))
            told_at_s = now_s - float(saved["age_s"]) - passed_s
            groups[_key(saved["group"])] = _Group(
                next_at_s=max(now_s, told_at_s + self._rules.interval_s),
                told={fingerprint(alert.labels): alert for alert in told},
                ended={fingerprint(alert.labels): alert for alert in ended},
                told_at_s=told_at_s,
            )
        self._groups = groups


def _has_news(group: _Group) -> bool:
    return bool(group.ended or group.firing.keys() - group.told.keys())


def _key(names: Any) -> Key:
    key = tuple(str(name) for name in names)
    if len(key) != len(GROUP_BY):
        msg = f"a group of {key!r}"
        raise ValueError(msg)
    return key
