"""All settings of the supervisor: the sections of its YAML file, and the file's reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from otel_straggler.collector.access.grants import read_grants
from otel_straggler.collector.access.settings import (
    ADDRESS,
    AuthSettings,
    TlsSettings,
    is_loopback,
    parse_address,
)
from otel_straggler.collector.access.tls import ServerTls, check_tls
from otel_straggler.errors import ConfigError
from otel_straggler.setting import (
    ANY_TEXT,
    above,
    choice,
    is_base_url,
    kind,
    option,
    read_section,
    text,
    texts,
)
from otel_straggler.supervisor.executors import is_host_name
from otel_straggler.supervisor.executors.kubernetes import KubernetesSettings
from otel_straggler.supervisor.executors.shell import ShellSettings
from otel_straggler.supervisor.executors.slurm import SlurmSettings
from otel_straggler.supervisor.fleet import HOST_STATES, Host
from otel_straggler.supervisor.policy import PolicySettings, read_rules
from otel_straggler.yaml_file import read_yaml

_HOSTS: Final = kind(
    accepts=lambda value: (
        isinstance(value, Mapping)
        and all(map(is_host_name, value))
        and set(HOST_STATES).issuperset(value.values())
    ),
    expected=f"a mapping of host names, each of one host, to one of {', '.join(HOST_STATES)}",
    convert=lambda value: tuple(value.items()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where alerts, reports and commands come in."""

    listen: str = option(
        "127.0.0.1:9470",
        ADDRESS,
        "address",
    )
    allowed_hosts: tuple[str, ...] = option(
        (), texts("a list of host names"), "further names of this server, as in the collector"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """The journal."""

    path: str = option(
        "otel-straggler-supervisor.db",
        text("a path", bool),
        "SQLite file with the fleet and all decisions; one supervisor per file",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """The hosts that an operator names; docs/operate/supervisor.md, "Hosts", says which others
    there are."""

    hosts: tuple[tuple[str, str], ...] = option(
        (), _HOSTS, "state of each host that the journal does not know yet"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    """What acts."""

    kind: str = option(
        "print",
        choice("print", "shell", "slurm", "kubernetes"),
        "print = say what would be done, and do nothing",
    )
    timeout_s: float = option(60.0, above(0, 3600), "of one step")
    shell: ShellSettings = field(default_factory=ShellSettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """Where spans of decisions go."""

    endpoint: str = option(
        "",
        text(
            "an http:// or https:// URL without /v1/traces",
            lambda url: not url or is_base_url(url),
        ),
        "base URL for OTLP over HTTP; empty = no spans are sent",
    )
    token_file: str = option("", ANY_TEXT, "holds a bearer token for it")


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """The sections of the file."""

    server: ServerSettings = field(default_factory=ServerSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    state: StateSettings = field(default_factory=StateSettings)
    fleet: FleetSettings = field(default_factory=FleetSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    executor: ExecutorSettings = field(default_factory=ExecutorSettings)
    export: ExportSettings = field(default_factory=ExportSettings)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Those of ``fleet.hosts``."""
        return tuple(Host(name=name, state=state) for name, state in self.fleet.hosts)  # type: ignore[arg-type]


def load_settings(path: str | Path | None) -> SupervisorSettings:
    """The settings of a file; None for the defaults.

    Raises:
        ConfigError: a key is unknown, a value is not accepted, or the file is missing or no YAML.
    """
    document: Any = (
        None if path is None else read_yaml(Path(path), see="docs/operate/supervisor.md")
    )
    prefix = f"{path}: "
    settings = read_section(SupervisorSettings, document, str(path), prefix)
    check_tls(settings.tls)
    return replace(settings, policy=read_rules(settings.policy, f"{prefix}policy."))


def check_start(settings: SupervisorSettings) -> None:
    """Check what a start checks besides the settings themselves, without opening anything.

    Raises:
        ConfigError: it would be open to others, or a file of grants or certificates is wrong.
    """
    listen, auth = settings.server.listen, settings.auth
    if not (auth.is_on or auth.insecure or is_loopback(parse_address(listen, where="")[0])):
        raise ConfigError.of(
            "server.listen",
            listen,
            "a loopback address where there are no grants: anybody who reaches another could have "
            "hosts drained and jobs restarted",
            "Name a file of grants in auth.grant_files (docs/operate/security.md), or allow it "
            "with auth.insecure: true.",
        )
    for path in auth.grant_files:
        read_grants(path)
    if settings.tls.is_on:
        ServerTls(settings.tls)


def check_policy(settings: SupervisorSettings, actions: frozenset[Any]) -> None:
    """Check that an executor can do what the rules say.

    Raises:
        ConfigError: it cannot.
    """
    for rule in settings.policy.rules:
        if rule.action not in actions:
            can = ", ".join(sorted(actions))
            expected = f"an action that the executor {settings.executor.kind} can do: {can}"
            remedy = "Change the action, or the executor."
            raise ConfigError.of(f"policy.rules: {rule.name}", rule.action, expected, remedy)
