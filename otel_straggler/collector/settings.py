"""The collector's settings: defaults, a YAML file, flags; each wins over the one before."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from otel_straggler.errors import ConfigError, UnavailableError, describe
from otel_straggler.score.settings import ScoreSettings

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """Where OTLP comes in. Addresses are HOST:PORT; port 0 picks a free one.

    Attributes:
        otlp_http: OTLP over HTTP, protobuf and JSON.
        otlp_grpc: OTLP over gRPC.
        max_body_bytes: of one request, after decompression; larger ones are refused.
        max_waiting_bytes: of requests not yet scored; beyond it senders are told to come back
            later.
    """

    otlp_http: str = "127.0.0.1:4318"
    otlp_grpc: str = "127.0.0.1:4317"
    max_body_bytes: int = 64 * MiB
    max_waiting_bytes: int = 256 * MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The address of /metrics, /v1/report, /healthz and /readyz.

    Attributes:
        listen: where these pages are.
        allowed_hosts: further names that a Host header may carry, beside loopback and the address.
        collector_id: value of the ``collector`` label; host name and port if empty.
        series_budget: series per run.
        keep_scores_seconds: how long a rank's last scores stay without a new window.
    """

    listen: str = "127.0.0.1:9464"
    allowed_hosts: tuple[str, ...] = ()
    collector_id: str = ""
    series_budget: int = 50_000
    keep_scores_seconds: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSettings:
    """Layer 1, in the words of the file; see :class:`ScoreSettings`.

    Attributes:
        window_steps: steps that are scored together.
        window_seconds: length of a window for spans without a step.
        grace_seconds: how long a window waits for the other ranks after the first has passed it.
        idle_seconds: without spans and heartbeats for so long, a window closes.
        threshold: a score below it lists the rank as a straggler.
        min_reference_samples: a median of fewer runs never becomes a rank's own best.
        reference_half_life_seconds: a best that is not met again doubles in this time.
        max_section_names: per run; further ones count as ``<other>``.
        max_runs: runs kept; the one idle longest is forgotten first.
        forget_run_seconds: a run that is silent for so long is forgotten.
    """

    window_steps: int = 20
    window_seconds: float = 30.0
    grace_seconds: float = 5.0
    idle_seconds: float = 30.0
    threshold: float = 0.75
    min_reference_samples: int = 5
    reference_half_life_seconds: float = 86_400.0
    max_section_names: int = 200
    max_runs: int = 100
    forget_run_seconds: float = 3_600.0

    def for_scorer(self) -> ScoreSettings:
        return ScoreSettings(
            window_steps=self.window_steps,
            window_s=self.window_seconds,
            grace_s=self.grace_seconds,
            idle_s=self.idle_seconds,
            threshold=self.threshold,
            min_reference_samples=self.min_reference_samples,
            reference_half_life_s=self.reference_half_life_seconds,
            max_names=self.max_section_names,
            max_runs=self.max_runs,
            forget_s=self.forget_run_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardSettings:
    """Where requests go on to, untouched. Mode "off" or "all"; a URL alone means "all".

    Attributes:
        url: base URL of an OTLP/HTTP endpoint; each signal's path is added.
        mode: whether requests are passed on; empty = "all" if there is a URL.
        max_queue_bytes: of requests that wait to be passed on; beyond it the oldest is dropped,
            and counted.
    """

    url: str = ""
    mode: str = ""
    max_queue_bytes: int = 256 * MiB

    @property
    def is_on(self) -> bool:
        return bool(self.url) and self.mode != "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """All of it, one slice per stage."""

    receivers: ReceiverSettings = field(default_factory=ReceiverSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    scoring: ScoringSettings = field(default_factory=ScoringSettings)
    forward: ForwardSettings = field(default_factory=ForwardSettings)


_RULES: dict[str, tuple[str, Any]] = {
    "max_body_bytes": ("an integer of at least 1024", lambda v: v >= 1024),
    "max_waiting_bytes": ("an integer of at least 1048576", lambda v: v >= MiB),
    "max_queue_bytes": ("an integer of at least 1048576", lambda v: v >= MiB),
    "series_budget": ("an integer of at least 100", lambda v: v >= 100),
    "keep_scores_seconds": ("a number above 0", lambda v: v > 0),
    "window_steps": ("an integer of at least 1", lambda v: v >= 1),
    "window_seconds": ("a number of at least 0.1", lambda v: v >= 0.1),
    "grace_seconds": ("a number of at least 0", lambda v: v >= 0),
    "idle_seconds": ("a number above 0", lambda v: v > 0),
    "threshold": ("a number above 0 and at most 1", lambda v: 0 < v <= 1),
    "min_reference_samples": ("an integer of at least 1", lambda v: v >= 1),
    "reference_half_life_seconds": ("a number above 0", lambda v: v > 0),
    "max_section_names": ("an integer of at least 1", lambda v: v >= 1),
    "max_runs": ("an integer of at least 1", lambda v: v >= 1),
    "forget_run_seconds": ("a number above 0", lambda v: v > 0),
    "mode": ('"off" or "all"', lambda v: v in ("", "off", "all")),
    "url": (
        "an http:// or https:// URL without a path of its own, e.g. http://gateway:4318",
        lambda v: not v or v.startswith(("http://", "https://")),
    ),
}
_ADDRESSES = frozenset({"otlp_http", "otlp_grpc", "listen"})
_TYPE_NAMES = {int: "an integer", float: "a number", str: "text", tuple: "a list of text"}


def parse_address(text: str, *, where: str) -> tuple[str, int]:
    """Split HOST:PORT (an IPv6 host in brackets).

    >>> parse_address("[::1]:4318", where="x")
    ('::1', 4318)

    Raises:
        ConfigError: there is no port, or it is none.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(
            describe(
                where=where,
                value=text,
                expected="HOST:PORT with a port of 0 to 65535",
                remedy="Use for example 127.0.0.1:4318; port 0 picks a free one.",
            )
        )
    return host, int(port)


def load_settings(path: str | Path | None, flags: Mapping[str, Any]) -> CollectorSettings:
    """Read the file, then let flags win.

    Args:
        path: YAML file; None for the defaults.
        flags: {"section.key": value}; None means not given. Errors name ``flags``' keys through
            :data:`FLAG_OF`.

    Raises:
        ConfigError: a key is unknown, a value has the wrong type or is out of range, the file is
            missing or no YAML.
    """
    document = _read(Path(path)) if path is not None else {}
    slices: dict[str, Any] = {}
    for section in dataclasses.fields(CollectorSettings):
        slices[section.name] = _slice(
            section.default_factory,  # type: ignore[arg-type]
            document.pop(section.name, None),
            f"{path}: {section.name}",
        )
    if document:
        _refuse_key(str(path), next(iter(document)), CollectorSettings)
    for key, value in flags.items():
        if value is not None:
            section_name, _, name = key.partition(".")
            checked = _checked(FLAG_OF[key], name, value)
            slices[section_name] = dataclasses.replace(slices[section_name], **{name: checked})
    return CollectorSettings(**slices)


FLAG_OF = {
    "receivers.otlp_http": "--otlp-http",
    "receivers.otlp_grpc": "--otlp-grpc",
    "metrics.listen": "--metrics",
    "forward.url": "--forward",
    "scoring.window_seconds": "--window-seconds",
    "scoring.window_steps": "--window-steps",
}

_Slice = TypeVar("_Slice")


def _slice(kind: type[_Slice], values: Any, where: str) -> _Slice:
    if values is None:
        return kind()
    if not isinstance(values, dict):
        raise ConfigError(
            describe(
                where=where,
                value=values,
                expected="a mapping of settings",
                remedy="Indent the settings under it, one 'key: value' a line.",
            )
        )
    types = {f.name: type(getattr(kind(), f.name)) for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    checked = {}
    for name, value in values.items():
        if name not in types:
            _refuse_key(where, name, kind)
        checked[name] = _checked(f"{where}.{name}", name, _typed(where, name, value, types[name]))
    return kind(**checked)


def _typed(where: str, name: str, value: Any, kind: type) -> Any:
    if name == "mode" and value is False:  # YAML reads a bare off as a boolean
        return "off"
    if kind is tuple and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if type(value) is kind and kind is not tuple:
        return value
    raise ConfigError(
        describe(
            where=f"{where}.{name}",
            value=value,
            expected=_RULES.get(name, (_TYPE_NAMES[kind],))[0],
            remedy="Correct it, or remove the line for the default.",
        )
    )


def _checked(where: str, name: str, value: Any) -> Any:
    if name in _ADDRESSES:
        parse_address(value, where=where)
    expected, holds = _RULES.get(name, ("", lambda _: True))
    if (isinstance(value, float) and not math.isfinite(value)) or not holds(value):
        raise ConfigError(
            describe(
                where=where,
                value=value,
                expected=expected,
                remedy="Correct it, or leave it out for the default.",
            )
        )
    return value


def _refuse_key(where: str, key: object, kind: Any) -> None:
    known = ", ".join(f.name for f in dataclasses.fields(kind))
    raise ConfigError(
        describe(
            where=where,
            value=key,
            expected=f"one of {known}",
            remedy="Correct the spelling, or remove it.",
        )
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        msg = (
            "--config needs the package PyYAML, which is not installed. "
            "Install it with: pip install 'otel-straggler[collector]'"
        )
        raise UnavailableError(msg) from error
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            describe(
                where="--config",
                value=str(path),
                expected="a readable UTF-8 file",
                remedy=f"Check the path and its permissions ({error}).",
            )
        ) from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", -1) + 1
        problem = getattr(error, "problem", None) or "cannot be read"
        raise ConfigError(
            f"{path}:{line}: not YAML: {problem}; expected 'key: value' lines. "
            "See docs/collector.yaml for every setting."
        ) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(
            describe(
                where=str(path),
                value=document,
                expected="a mapping with receivers, metrics, scoring, forward",
                remedy="See docs/collector.yaml for every setting.",
            )
        )
    return document
