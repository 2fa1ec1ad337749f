"""Configurations of OpenTelemetry Collectors that keep every run on one of several collectors."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from otel_straggler import semconv
from otel_straggler.errors import ConfigError, InputError, UnavailableError

Json = dict[str, Any]
MAX_SHARDS: Final = 64
_DIGITS: Final = 3
SLOTS: Final = 16**_DIGITS
"""Of the hash of a run's name: its first hex digits."""
SHARD_KEY: Final = "straggler.shard"
_SLOT_KEY: Final = "straggler.slot"
_MAX_LINE: Final = 100
_PLACEHOLDER: Final = "{n}"
_RETRY: Final = {
    "enabled": True,
    "initial_interval": "1s",
    "max_interval": "5s",
    "max_elapsed_time": "0s",
}
_LIMITER: Final = {"check_interval": "1s", "limit_percentage": 75, "spike_limit_percentage": 20}
_NEEDED: Final = {
    "--shard-ca-file": "--shard-url",
    "--gateway-ca-file": "--gateway-url",
    "--gateway-cert-file": "--gateway-key-file",
    "--gateway-key-file": "--gateway-cert-file",
}
_AUTHENTICATOR: Final = "bearertokenauth"
_AGENT: Final = """\
# Agent: an OpenTelemetry Collector on every node. Ranks send to it (OTEL_STRAGGLER_ENDPOINT=
# http://127.0.0.1:4318); what the gateway does not take waits on the node's disk.
# Components: otlp receiver, memory_limiter, otlp_grpc exporter, file_storage.{environment}
# Written by: otel-straggler deploy otelcol
"""
_GATEWAY: Final = """\
# Gateway: sends every run, as a whole, to one of {shards} collectors. The first {digits} hex digits
# of the SHA-256 of the run's name are one of {slots} slots, and each slot belongs to a shard; with
# one more shard only the slots that the new one gets change hands.
# Components: otlp receiver, memory_limiter, groupbyattrs, transform, filter, forward connector,
# otlp_http exporter, file_storage{authenticator}.{environment}
# Written by: otel-straggler deploy otelcol --shards {shards}
"""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Agents on nodes, a gateway, and the collectors behind it.

    Attributes:
        shards: number of collectors.
        shard_url: OTLP/HTTP address of each, with ``{n}`` for its number.
        gateway_url: OTLP/gRPC address of the gateway.
        queue_dir: folder for what waits.
        run_keys: attribute keys with a run's name that are read before the built-in ones.
        shard_token_env, gateway_token_env: environment variables with the bearer tokens that shards
            and gateway ask for; empty: none.
        shard_ca_file, gateway_ca_file: certificates of who signed those of shards and gateway, on
            the machines of those who connect; empty: those of the system.
        gateway_cert_file, gateway_key_file: of the gateway; empty: no TLS, or in front of it.

    Raises:
        ConfigError: a value is out of range, or is no URL.
    """

    shards: int
    shard_url: str = "http://straggler-{n}:4318"
    gateway_url: str = "http://otel-gateway:4317"
    queue_dir: str = "/var/lib/otelcol/straggler"
    run_keys: tuple[str, ...] = ()
    shard_token_env: str = ""
    gateway_token_env: str = ""
    shard_ca_file: str = ""
    gateway_ca_file: str = ""
    gateway_cert_file: str = ""
    gateway_key_file: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= MAX_SHARDS:
            remedy = "More runs than that many collectors can take? Use one gateway per cluster."
            raise ConfigError.of("--shards", self.shards, f"1 to {MAX_SHARDS}", remedy)
        if self.shards > 1 and _PLACEHOLDER not in self.shard_url:
            expected = f"a URL with {_PLACEHOLDER} for the shard's number"
            raise ConfigError.of("--shard-url", self.shard_url, expected, "Try the default.")
        for option, url in (("--shard-url", self.url_of(0)), ("--gateway-url", self.gateway_url)):
            if not re.match(r"https?://[^/\s]+", url):
                expected = f"a URL such as {Fleet.gateway_url}"
                raise ConfigError.of(option, url, expected, f"Correct {option}.")
        for option in ("--shard-token-env", "--gateway-token-env"):
            name = self._value_of(option)
            if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                expected = "the name of an environment variable, not a token itself"
                raise ConfigError.of(option, "...", expected, "Try STRAGGLER_TOKEN.")
        for option, other in _NEEDED.items():
            value, needed = self._value_of(option), self._value_of(other)
            if value and (not needed or needed.startswith("http://")):
                expected = f"{other} with it, and an https:// one if it is a URL"
                raise ConfigError.of(option, value, expected, f"Correct {other}.")

    def _value_of(self, option: str) -> str:
        value: str = getattr(self, option.removeprefix("--").replace("-", "_"))
        return value

    def url_of(self, shard: int) -> str:
        return self.shard_url.replace(_PLACEHOLDER, str(shard))


def write_files(fleet: Fleet, folder: Path) -> list[Path]:
    """Write ``agent.yaml`` and ``gateway.yaml``; returns their paths.

    Raises:
        InputError: the folder cannot be written.
        UnavailableError: PyYAML is not installed.
    """
    of_agent, of_gateway = (
        _environment(fleet.gateway_token_env),
        _environment(fleet.shard_token_env, fleet.gateway_token_env),
    )
    heads = {
        "shards": fleet.shards,
        "digits": _DIGITS,
        "slots": SLOTS,
        "authenticator": f", {_AUTHENTICATOR}" * bool(fleet.gateway_token_env),
        "environment": of_gateway,
    }
    texts = {
        "agent.yaml": _AGENT.format(environment=of_agent) + _as_yaml(agent(fleet)),
        "gateway.yaml": _GATEWAY.format(**heads) + _as_yaml(gateway(fleet)),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        expected, why = "a folder that can be written", f"{error.strerror}."
        raise InputError.of("--output", str(folder), expected, why) from error
    return [folder / name for name in texts]


def _environment(*names: str) -> str:
    """A line of a head."""
    needed = sorted({name for name in names if name})
    return f"\n# Environment: {', '.join(needed)}, with a bearer token." if needed else ""


def _as_yaml(document: Json) -> str:
    try:
        import yaml
    except ImportError as error:
        msg = "PyYAML is not installed. Run: pip install 'otel-straggler[collector]'"
        raise UnavailableError(msg) from error

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
            return True

        def represent_sequence(
            self, tag: str, sequence: Any, flow_style: bool | None = None
        ) -> Any:
            is_short = len(str(sequence)) < _MAX_LINE
            return super().represent_sequence(tag, sequence, is_short and flow_style)

    text: str = yaml.dump(
        document, Dumper=Dumper, sort_keys=False, width=10**6, default_flow_style=None
    )
    return text


# --- which run is where --------------------------------------------------------------------------


@cache
def shard_of_slot(shards: int) -> tuple[int, ...]:
    """The shard of each slot. Shards have equally many, give or take one; those of N shards and of
    N + 1 differ only in slots of the new one.

    >>> [shard_of_slot(3).count(shard) for shard in range(3)]
    [1365, 1366, 1365]
    >>> before, after = shard_of_slot(3), shard_of_slot(4)
    >>> {new for old, new in zip(before, after) if old != new}
    {3}
    """
    order = sorted(range(SLOTS), key=lambda slot: hashlib.sha256(b"slot %d" % slot).digest())
    of_shard: list[list[int]] = [order]
    for new in range(1, shards):
        of_shard.append([])
        for _ in range(SLOTS // (new + 1)):
            largest = max(range(new), key=lambda shard: (len(of_shard[shard]), -shard))
            of_shard[new].append(of_shard[largest].pop())
    result = [0] * SLOTS
    for shard, slots in enumerate(of_shard):
        for slot in slots:
            result[slot] = shard
    return tuple(result)


def shard_of_run(name: str, shards: int) -> int:
    """Where the gateway sends a run."""
    return shard_of_slot(shards)[int(hashlib.sha256(name.encode()).hexdigest()[:_DIGITS], 16)]


def _pattern(slots: list[int]) -> str:
    """A regular expression for some slots: ``^(a3[0-2f]|b0f)$`` in full.

    >>> _pattern([0xA30, 0xA31, 0xA3F, 0xB0F])
    '^(a3[01f]|b0f)$'
    """
    names = sorted(f"{slot:0{_DIGITS}x}" for slot in slots)
    parts = []
    for prefix, members in groupby(names, key=lambda name: name[:-1]):
        last = "".join(name[-1] for name in members)
        parts.append(prefix + (last if len(last) == 1 else f"[{last}]"))
    return f"^({'|'.join(parts)})$"


# --- the files -----------------------------------------------------------------------------------


def agent(fleet: Fleet) -> Json:
    """The configuration of a node's agent."""
    exporter = {
        "endpoint": urlsplit(fleet.gateway_url).netloc,
        "tls": {
            "insecure": not fleet.gateway_url.startswith("https://"),
            **_present(ca_file=fleet.gateway_ca_file),
        },
        **_bearer(fleet.gateway_token_env),
        **_sending(),
    }
    pipeline = {"receivers": ["otlp"], "processors": ["memory_limiter"], "exporters": ["otlp_grpc"]}
    return {
        **_receiving("127.0.0.1"),
        **_storage(fleet),
        "processors": {"memory_limiter": _LIMITER},
        "exporters": {"otlp_grpc": exporter},
        "service": {
            "extensions": ["file_storage"],
            "pipelines": {"traces": dict(pipeline), "metrics": dict(pipeline)},
        },
    }


def gateway(fleet: Fleet) -> Json:
    """The configuration of the gateway."""
    statements = [{"context": "resource", "statements": _statements(fleet)}]
    processors: Json = {
        "memory_limiter": _LIMITER,
        "groupbyattrs/run": {"keys": _run_keys(fleet)},
        "transform/shard": {
            "error_mode": "ignore",
            "trace_statements": statements,
            "metric_statements": [dict(statements[0])],
        },
    }
    exporters: Json = {}
    first = ["memory_limiter", "groupbyattrs/run", "transform/shard"]
    pipelines: Json = {
        f"{signal}/in": {"receivers": ["otlp"], "processors": list(first), "exporters": ["forward"]}
        for signal in ("traces", "metrics")
    }
    for shard in range(fleet.shards):
        name = f"shard{shard}"
        others = [f'attributes["{SHARD_KEY}"] != "{shard}"']
        processors[f"filter/{name}"] = {
            "error_mode": "ignore",
            "traces": {"resource": others},
            "metrics": {"resource": list(others)},
        }
        exporters[f"otlp_http/{name}"] = {
            "endpoint": fleet.url_of(shard),
            **_present(tls=_present(ca_file=fleet.shard_ca_file)),
            **_bearer(fleet.shard_token_env),
            **_sending(),
        }
        for signal in ("traces", "metrics"):
            pipelines[f"{signal}/{name}"] = {
                "receivers": ["forward"],
                "processors": [f"filter/{name}"],
                "exporters": [f"otlp_http/{name}"],
            }
    document = {
        # Agents of all nodes send here.
        **_receiving("0.0.0.0", **_guarding(fleet)),  # noqa: S104
        **_storage(fleet),
        "processors": processors,
        "connectors": {"forward": {}},
        "exporters": exporters,
        "service": {"extensions": ["file_storage"], "pipelines": pipelines},
    }
    if fleet.gateway_token_env:
        document["extensions"][_AUTHENTICATOR] = {"token": f"${{env:{fleet.gateway_token_env}}}"}
        document["service"]["extensions"].append(_AUTHENTICATOR)
    return document


def _guarding(fleet: Fleet) -> Json:
    """Of the gateway's receivers: its certificate, and who checks tokens."""
    files = _present(cert_file=fleet.gateway_cert_file, key_file=fleet.gateway_key_file)
    auth = {"authenticator": _AUTHENTICATOR} if fleet.gateway_token_env else {}
    return _present(tls=files, auth=auth)


def _bearer(variable: str) -> Json:
    """Of an exporter."""
    return {"headers": {"authorization": f"Bearer ${{env:{variable}}}"}} if variable else {}


def _present(**values: object) -> Json:
    """Those that are not empty."""
    return {name: value for name, value in values.items() if value}


def _receiving(host: str, **guarding: object) -> Json:
    ports = {"http": 4318, "grpc": 4317}
    protocols = {name: {"endpoint": f"{host}:{port}", **guarding} for name, port in ports.items()}
    return {"receivers": {"otlp": {"protocols": protocols}}}


def _storage(fleet: Fleet) -> Json:
    folder = {"directory": fleet.queue_dir, "create_directory": True}
    return {"extensions": {"file_storage": folder}}


def _sending() -> Json:
    """A queue on disk, sent in order: one consumer, so that a retried request is not overtaken by
    newer ones; what waits is merged, so that one is enough."""
    return {
        "retry_on_failure": dict(_RETRY),
        "sending_queue": {
            "enabled": True,
            "storage": "file_storage",
            "num_consumers": 1,
            "queue_size": 100_000,
            "batch": {"flush_timeout": "200ms", "min_size": 2_000, "max_size": 20_000},
        },
    }


def _run_keys(fleet: Fleet) -> list[str]:
    return list(dict.fromkeys((*fleet.run_keys, *semconv.RUN_ID_ALIASES)))


def _statements(fleet: Fleet) -> list[str]:
    """OTTL on the resource: the run's name, its slot, its shard. The key that wins comes last."""
    slot, shard = f'attributes["{_SLOT_KEY}"]', f'attributes["{SHARD_KEY}"]'
    names = (semconv.SERVICE_NAME, *reversed(_run_keys(fleet)))
    table = shard_of_slot(fleet.shards)
    by_shard = [[s for s in range(SLOTS) if table[s] == n] for n in range(1, fleet.shards)]
    return [
        f'set({slot}, "")',
        *(
            f'set({slot}, String(attributes["{name}"])) '
            f'where attributes["{name}"] != nil and attributes["{name}"] != ""'
            for name in names
        ),
        f"set({slot}, Substring(SHA256({slot}), 0, {_DIGITS}))",
        f'set({shard}, "0")',
        *(
            f'set({shard}, "{n}") where IsMatch({slot}, "{_pattern(slots)}")'
            for n, slots in enumerate(by_shard, 1)
        ),
        f'delete_key(attributes, "{_SLOT_KEY}")',
    ]
