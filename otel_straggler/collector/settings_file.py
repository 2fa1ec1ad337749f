"""Settings from a YAML file and flags: flags win over the file, the file over the defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from otel_straggler.collector.access.grants import read_grants
from otel_straggler.collector.access.settings import is_loopback, parse_address
from otel_straggler.collector.access.tls import ServerTls, check_tls
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.collector.history.postgres import is_postgres
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.settings import (
    CollectorSettings,
    CommandsSettings,
)
from otel_straggler.config import TOKEN
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.errors import ConfigError
from otel_straggler.regular_files import check_readable
from otel_straggler.setting import Setting, read_section, rows_of, sections_of
from otel_straggler.yaml_file import read_yaml

TOKEN_VARIABLE: Final = "OTEL_STRAGGLER_COMMANDS_TOKEN"  # noqa: S105  a name, no secret
_FILES: Final = ("token_file", "password_file", "ca_file", "cert_file", "key_file")


def flag_rows() -> dict[str, Setting]:
    """The settings that have a flag, by "section.key"; their source is the flag and its metavar."""
    return {
        f"{section}.{key}": row
        for section, kind in sections_of(CollectorSettings).items()
        for key, row in rows_of(kind).items()
        if row.sources
    }


def flag_of(row: Setting) -> tuple[str, str]:
    """Flag and metavar."""
    flag, _, metavar = str(row.sources[0]).partition(" ")
    return flag, metavar


def load_settings(path: str | Path | None, flags: Mapping[str, Any]) -> CollectorSettings:
    """Read the file, then let flags win.

    Args:
        path: YAML file; None for the defaults.
        flags: {"section.key": value}; None means not given.

    Raises:
        ConfigError: a key is unknown, a value has the wrong type or is out of range, the file is
            missing or no YAML.
    """
    document = None if path is None else read_yaml(Path(path), see="docs/collector.yaml")
    settings = read_section(CollectorSettings, document, str(path), f"{path}: ")
    rows = flag_rows()
    for key, value in flags.items():
        if value is not None:
            name, row = key.partition(".")[0], rows[key]
            section = getattr(settings, name)
            given = {row.field: row.checked(value, flag_of(row)[0])}
            settings = replace(settings, **{name: replace(section, **given)})
    mode_source = flag_of(rows["forward.mode"])[0] if path is None else f"{path}: forward.mode"
    forward = settings.forward
    if forward.mode in ("all", "sampled") and not forward.url:
        expected = "a URL to forward to alongside it"
        remedy = "Name one with --forward URL or forward.url, or set the mode to off."
        raise ConfigError.of(mode_source, forward.mode, expected, remedy)
    if settings.history.spool and not settings.history.path:
        raise ConfigError.of(
            "--spool" if path is None else f"{path}: history.spool",
            settings.history.spool,
            "a history alongside it, which keeps what the log led to",
            "Name one with --history PATH or history.path.",
        )
    check_verdicts(settings.verdicts, f"{path}: verdicts.")
    check_notify(settings.alerts.notify, f"{path}: alerts.notify.")
    check_tls(settings.tls)
    return replace(settings, commands=with_token(settings.commands, str(path)))


def exposed(settings: CollectorSettings) -> dict[str, str]:
    """Addresses at which other machines may do everything, by the name of their setting; none
    where there are grants."""
    if settings.auth.is_on:
        return {}
    addresses = {
        "receivers.otlp_http": settings.receivers.otlp_http,
        "receivers.otlp_grpc": settings.receivers.otlp_grpc,
        "metrics.listen": settings.metrics.listen,
    }
    hosts = {name: parse_address(each, where=name)[0] for name, each in addresses.items()}
    return {name: addresses[name] for name, host in hosts.items() if not is_loopback(host)}


def check_exposure(settings: CollectorSettings) -> None:
    """Check that nobody from outside gets in by mistake.

    Raises:
        ConfigError: an address is no loopback, there are no grants, and nobody allowed that.
    """
    open_to_others = exposed(settings)
    if open_to_others and not settings.auth.insecure:
        where, address = next(iter(open_to_others.items()))
        raise ConfigError.of(
            where,
            address,
            "a loopback address where there are no grants: anybody who reaches another could send "
            "telemetry and silence alerts",
            "Name a file of grants in auth.grant_files (docs/operate/security.md), or allow it "
            "with --insecure or auth.insecure: true.",
        )


def check_start(settings: CollectorSettings) -> None:
    """Check what a start checks besides the settings themselves, without opening a port or waiting
    for a server.

    Raises:
        ConfigError: it would be open to others, a file of grants or certificates is missing or
            wrong, or the history is the database of another program.
        UnavailableError: the history is a file of another version, or cannot be read.
        InputError: the history is damaged.
    """
    check_exposure(settings)
    for path in settings.auth.grant_files:
        read_grants(path)
    if settings.tls.is_on:
        ServerTls(settings.tls)
    path = settings.history.path
    if path and not is_postgres(path) and Path(path).exists():
        HistoryReader(path).close()


def with_token(
    settings: CommandsSettings, where: str, env: Mapping[str, str] | None = None
) -> CommandsSettings:
    """The settings with the token of the environment, where they have none.

    Raises:
        ConfigError: commands are on without a token, or it cannot stand in a header.
    """
    given = settings.token or (os.environ if env is None else env).get(TOKEN_VARIABLE, "").strip()
    if settings.enabled and not (given and TOKEN.accepts(given)):
        raise ConfigError.of(
            f"{where}: commands.token",
            "..." if given else "",
            TOKEN.expected,
            f"Set {TOKEN_VARIABLE}, for example to the output of: openssl rand -hex 32",
        )
    return replace(settings, token=given)


def check_verdicts(settings: VerdictSettings, where: str) -> None:
    """Check that some window has a whole block; ``where`` comes before the names of settings.

    Raises:
        ConfigError: a block is longer than every window.
    """
    longest = max(settings.windows_steps)
    if settings.block_steps > longest:
        raise ConfigError.of(
            f"{where}block_steps",
            settings.block_steps,
            f"at most {longest}, the longest of {where}windows_steps",
            "Make the blocks shorter, or add a longer window.",
        )


def check_notify(settings: NotifySettings, where: str) -> None:
    """Check what no single value can say; ``where`` comes before the names of settings.

    Raises:
        ConfigError: two ways would notify people twice; a file cannot be read; half of a pair is
            missing, or there are two ways to authenticate.
    """
    if settings.alertmanagers and settings.webhook:
        raise ConfigError.of(
            f"{where}webhook",
            settings.webhook,
            "no webhook alongside alertmanagers: people would be called twice",
            "Remove one of them; an Alertmanager can call the webhook.",
        )
    if settings.token_file and settings.username:
        where, username = f"{where}username", settings.username
        raise ConfigError.of(where, username, "none with token_file", "Remove one of them.")
    pairs = (
        ("username", "a password_file"),
        ("password_file", "a username"),
        ("key_file", "a cert_file"),
    )
    for name, other in pairs:
        value = getattr(settings, name)
        if value and not getattr(settings, other.removeprefix("a ")):
            raise ConfigError.of(f"{where}{name}", value, f"{other} with it", f"Add {other}.")
    for name in _FILES:
        _check_file(f"{where}{name}", getattr(settings, name))


def _check_file(where: str, path: str) -> None:
    if not path:
        return
    try:
        check_readable(path)
    except OSError as error:
        remedy = f"Check the path and its permissions ({error.strerror})."
        raise ConfigError.of(where, path, "a file that this process can read", remedy) from None
