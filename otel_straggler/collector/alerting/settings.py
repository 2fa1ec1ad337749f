"""Whom the collector itself tells of alerts, as its file says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from otel_straggler.alerts.settings import RULES as ALERT_RULES
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.alerting.posting import Access
from otel_straggler.collector.alerting.webhook import WebhookRules
from otel_straggler.errors import ConfigError, describe
from otel_straggler.model.alert import Severity

FORGOTTEN: Final = "StragglerRunForgotten"
"""Its end is never told: that nobody watches any more has no end that is good news."""
_FILES: Final = ("token_file", "password_file", "ca_file", "cert_file", "key_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySettings:
    """Whom the collector itself tells of alerts; by default nobody. One or more Alertmanagers, or
    one webhook; both at once would call people twice.

    Attributes:
        alertmanagers: base URLs of all replicas, e.g. http://alertmanager:9093; each gets
            everything, in mode observe too (labelled so).
        webhook: URL that understands Alertmanager's webhooks; it is told only in mode page.
        min_severity: a webhook is told of no less: info, warning or critical.
        send_resolved: whether a webhook is told when an alert ends.
        resend_seconds: an Alertmanager is told so often of what still fires.
        interval_seconds: a webhook gets at most one message in so long,
        repeat_seconds: and one without news after so long.
        timeout_seconds: of one request.
        token_file: holds a bearer token; read anew for each request.
        username, password_file: for basic authentication.
        ca_file: PEM file of the authorities to trust instead of the system's.
        cert_file, key_file: the collector's own certificate, where one is wanted.
        external_url: address of this collector for people, for links; that of its pages if empty.
    """

    alertmanagers: tuple[str, ...] = ()
    webhook: str = ""
    min_severity: Severity = "warning"
    send_resolved: bool = True
    resend_seconds: float = 60.0
    interval_seconds: float = 60.0
    repeat_seconds: float = 14_400.0
    timeout_seconds: float = 10.0
    token_file: str = ""
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    external_url: str = ""

    @property
    def is_on(self) -> bool:
        return bool(self.alertmanagers or self.webhook)

    def access(self) -> Access:
        return Access(
            timeout_s=self.timeout_seconds,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            token_file=self.token_file,
            username=self.username,
            password_file=self.password_file,
        )

    def webhook_rules(self) -> WebhookRules:
        return WebhookRules(
            interval_s=self.interval_seconds,
            repeat_s=self.repeat_seconds,
            sends_resolved=self.send_resolved,
            never_resolved=frozenset({FORGOTTEN}),
        )


def check_notify(settings: NotifySettings, where: str) -> None:
    """What no single value can say; ``where`` comes before the names of settings.

    Raises:
        ConfigError: two ways would call people twice; a file cannot be read; half of a pair is
            missing, or there are two ways to get in.
    """
    if settings.alertmanagers and settings.webhook:
        raise _wrong(
            f"{where}webhook",
            settings.webhook,
            "no webhook beside alertmanagers: people would be called twice",
            "Remove one of them; an Alertmanager can tell the webhook.",
        )
    if settings.token_file and settings.username:
        raise _wrong(
            f"{where}username", settings.username, "none beside token_file", "Remove one of them."
        )
    for one, other in (("username", "password_file"), ("key_file", "cert_file")):
        if getattr(settings, one) and not getattr(settings, other):
            reported = getattr(settings, one)
            raise _wrong(f"{where}{one}", reported, f"a {other} beside it", f"Name the {other}.")
    if settings.password_file and not settings.username:
        reported = settings.password_file
        raise _wrong(
            f"{where}password_file", reported, "a username beside it", "Name the username."
        )
    for name in _FILES:
        _check_file(f"{where}{name}", getattr(settings, name))


def check_urls(settings: NotifySettings, where: str) -> None:
    """The addresses, where they do not come from a file.

    Raises:
        ConfigError: one is none.
    """
    for name, option in (("alertmanagers", "alertmanager"), ("webhook", "webhook")):
        expected, holds = NOTIFY_RULES[name]
        value = getattr(settings, name)
        if not holds(value):
            raise _wrong(f"{where}{option}", value, expected, "Correct it.")


def _check_file(where: str, path: str) -> None:
    if not path:
        return
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        remedy = f"Check the path and its permissions ({error.strerror})."
        raise _wrong(where, path, "a file that this process can read", remedy) from None


def _wrong(where: str, value: object, expected: str, remedy: str) -> ConfigError:
    return ConfigError(describe(where=where, value=value, expected=expected, remedy=remedy))


def _is_address(url: str) -> bool:
    """With a scheme and a host, and without what would show in logs or be cut off."""
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is no port
    except ValueError:
        return False
    is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
    return is_http and "@" not in parts.netloc and not parts.fragment


def _is_base(url: str) -> bool:
    return _is_address(url) and "?" not in url


_BASE: Final = "without a name or password in it, e.g. http://alertmanager:9093"
NOTIFY_RULES: Final[Mapping[str, tuple[str, Any]]] = {
    "alertmanagers": (
        f"a list of http:// or https:// URLs {_BASE}",
        lambda urls: all(map(_is_base, urls)) and len(set(urls)) == len(urls),
    ),
    "webhook": (
        "an http:// or https:// URL without a name or password in it",
        lambda url: not url or _is_address(url),
    ),
    "external_url": (
        "an http:// or https:// URL without a name or password in it",
        lambda url: not url or _is_base(url),
    ),
    "min_severity": (
        '"info", "warning" or "critical"',
        lambda value: value in ("info", "warning", "critical"),
    ),
    "resend_seconds": ("a number of 0.1 to 3600", lambda v: 0.1 <= v <= 3600),
    "interval_seconds": ("a number of 0.1 to 86400", lambda v: 0.1 <= v <= 86_400),
    "repeat_seconds": ("a number of at least 60", lambda v: v >= 60),
    "timeout_seconds": ("a number above 0 and at most 60", lambda v: 0 < v <= 60),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsSettings(AlertSettings):
    """See :class:`AlertSettings`; a rule file that is rendered has the same thresholds only if it
    is rendered with them.

    Attributes:
        notify: whom the collector tells itself.
    """

    notify: NotifySettings = field(default_factory=NotifySettings)


RULES_OF_KIND: Final[Mapping[type, Mapping[str, tuple[str, Any]]]] = {
    AlertsSettings: ALERT_RULES,
    NotifySettings: NOTIFY_RULES,
}
"""Rules of names that other sections may have too, with a meaning of their own."""
