"""Settings from a YAML file and flags: flags win over the file, the file over the defaults."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from otel_straggler.collector import commands_settings
from otel_straggler.collector.alerting.settings import RULES_OF_KIND, check_notify
from otel_straggler.collector.commands_settings import with_token
from otel_straggler.collector.settings import (
    AttributeSettings,
    CollectorSettings,
    LivenessSettings,
    MiB,
    SpanSettings,
    parse_address,
)
from otel_straggler.errors import ConfigError, UnavailableError, describe

Rule: TypeAlias = tuple[str, Callable[[Any], Any]]
_TYPE_NAMES = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    tuple: "a list of text",
}
_ADDRESS = "HOST:PORT, such as 127.0.0.1:9464"


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
            rule = rule_for(type(slices[section_name]), name)
            checked = _checked(FLAG_OF[key], name, value, rule)
            slices[section_name] = dataclasses.replace(slices[section_name], **{name: checked})
    slices["commands"] = with_token(slices["commands"], str(path))
    settings = CollectorSettings(**slices)
    _check_forward(settings, path)
    check_notify(settings.alerts.notify, f"{path}: alerts.notify.")
    return settings


FLAG_OF = {
    "receivers.otlp_http": "--otlp-http",
    "receivers.otlp_grpc": "--otlp-grpc",
    "metrics.listen": "--metrics",
    "forward.url": "--forward",
    "forward.mode": "--forward-mode",
    "history.path": "--history",
    "scoring.window_seconds": "--window-seconds",
    "scoring.window_steps": "--window-steps",
}


def _check_forward(settings: CollectorSettings, path: str | Path | None) -> None:
    forward = settings.forward
    if forward.mode in ("all", "sampled") and not forward.url:
        raise ConfigError(
            describe(
                where=FLAG_OF["forward.mode"] if path is None else f"{path}: forward.mode",
                value=forward.mode,
                expected="a URL to forward to beside it",
                remedy="Name one with --forward URL or forward.url, or set the mode to off.",
            )
        )


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
    defaults = {f.name: getattr(kind(), f.name) for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in defaults:
            _refuse_key(where, name, kind)
        if dataclasses.is_dataclass(defaults[name]):
            checked[name] = _slice(type(defaults[name]), value, f"{where}.{name}")
            continue
        rule = rule_for(kind, name)
        typed = _typed(f"{where}.{name}", name, value, defaults[name], rule[0])
        checked[name] = _checked(f"{where}.{name}", name, typed, rule)
    return kind(**checked)


def rule_for(kind: type, name: str) -> Rule:
    """What a value of a section must be, in words (empty if its type is all) and as a predicate."""
    return RULES_OF_KIND.get(kind, RULES).get(name, ("", lambda _: True))


def _typed(where: str, name: str, value: Any, default: Any, expected: str) -> Any:
    """The value as the type of its default; of a list, every item as the default's first."""
    kind = type(default)
    if name == "mode" and value is False:  # YAML reads a bare off as a boolean
        return "off"
    if kind is tuple and isinstance(value, list):
        item = type(default[0]) if default else str
        if all(type(v) is item for v in value):
            return tuple(value)
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if type(value) is kind and kind is not tuple:
        return value
    raise ConfigError(
        describe(
            where=where,
            value=value,
            expected=expected or (_ADDRESS if name in ADDRESSES else _TYPE_NAMES[kind]),
            remedy="Correct it, or remove the line for the default.",
        )
    )


def _checked(where: str, name: str, value: Any, rule: Rule) -> Any:
    if name in ADDRESSES:
        parse_address(value, where=where)
    expected, holds = rule
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
        text = path.read_text(encoding="utf-8")
        refuse_repeated_keys(text, str(path))
        document = yaml.safe_load(text)
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
        if "'\\t'" in problem:
            problem += " (indent with blanks, not with tabs)"
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
                expected="a mapping with "
                + ", ".join(f.name for f in dataclasses.fields(CollectorSettings)),
                remedy="See docs/collector.yaml for every setting.",
            )
        )
    return document


def _are_ascending(values: tuple[int, ...]) -> bool:
    return bool(values) and values[0] >= 1 and all(a < b for a, b in pairwise(values))


def _are_text(values: tuple[str, ...]) -> bool:
    return all(value and value == value.strip() for value in values)


def _is_base_url(value: str) -> bool:
    of_a_signal = value.rstrip("/").endswith(("/v1/traces", "/v1/metrics", "/v1/logs"))
    return value.startswith(("http://", "https://")) and not of_a_signal


RULES: dict[str, tuple[str, Any]] = {
    "max_body_bytes": ("an integer of at least 1024", lambda v: v >= 1024),
    "max_waiting_bytes": ("an integer of at least 1048576", lambda v: v >= MiB),
    "max_queue_bytes": ("an integer of at least 1048576", lambda v: v >= MiB),
    "series_budget": ("an integer of at least 100", lambda v: v >= 100),
    "keep_scores_seconds": ("a number above 0", lambda v: v > 0),
    "timeline_mib": ("an integer of at least 1", lambda v: v >= 1),
    "window_steps": ("an integer of at least 1", lambda v: v >= 1),
    "window_longest_seconds": ("a number above 0", lambda v: v > 0),
    "window_seconds": ("a number of at least 0.1", lambda v: v >= 0.1),
    "grace_seconds": ("a number of at least 0", lambda v: v >= 0),
    "idle_seconds": ("a number above 0", lambda v: v > 0),
    "threshold": ("a number above 0 and at most 1", lambda v: 0 < v <= 1),
    "min_reference_samples": ("an integer of at least 1", lambda v: v >= 1),
    "reference_half_life_seconds": ("a number above 0", lambda v: v > 0),
    "max_section_names": ("an integer of at least 1", lambda v: v >= 1),
    "max_runs": ("an integer of at least 1", lambda v: v >= 1),
    "max_groups": ("an integer of at least 1", lambda v: v >= 1),
    "evict_run_seconds": ("a number above 0", lambda v: v > 0),
    "block_steps": ("an integer of at least 1", lambda v: v >= 1),
    "block_seconds": ("a number of at least 0.1", lambda v: v >= 0.1),
    "windows_steps": ("a list of ascending integers of at least 1", _are_ascending),
    "min_slowdown": ("a number of at least 1", lambda v: v >= 1),
    "floor_of_resolvable": ("a number of at least 0", lambda v: v >= 0),
    "min_z": ("a number of at least 0", lambda v: v >= 0),
    "page_slowdown": ("a number of at least 1", lambda v: v >= 1),
    "page_loss": ("a number of 0 to 1", lambda v: 0 <= v <= 1),
    "min_share": ("a number of 0 to 1", lambda v: 0 <= v <= 1),
    "min_peers": ("an integer of at least 2", lambda v: v >= 2),
    "quorum": ("a number of 0 to 1", lambda v: 0 <= v <= 1),
    "warm_up_steps": ("an integer of at least 0", lambda v: v >= 0),
    "max_changes": ("an integer of at least 1", lambda v: v >= 1),
    **{
        f.name: ("a list of attribute keys without blanks around them", _are_text)
        for f in dataclasses.fields(AttributeSettings)
    },
    **{
        f.name: ("a list of patterns of span names, such as train.*", _are_text)
        for f in dataclasses.fields(SpanSettings)
    },
    **{f.name: ("a number above 0", lambda v: v > 0) for f in dataclasses.fields(LivenessSettings)},
    **commands_settings.RULES,
    "keep_days": ("a number above 0", lambda v: v > 0),
    "max_mib": ("an integer of at least 1", lambda v: v >= 1),
    "save_every_seconds": ("a number above 0", lambda v: v > 0),
    "mode": ('"off", "all" or "sampled"', lambda v: v in ("", "off", "all", "sampled")),
    "sample_one_in": ("an integer of at least 1", lambda v: v >= 1),
    "slow_step_ratio": ("a number above 1", lambda v: v > 1),
    "max_trace_spans": ("an integer of at least 1", lambda v: v >= 1),
    "max_held_bytes": ("an integer of at least 1048576", lambda v: v >= MiB),
    "hold_seconds": ("a number above 0", lambda v: v > 0),
    "url": (
        "an http:// or https:// URL to which /v1/traces can be added, e.g. http://gateway:4318",
        lambda v: not v or _is_base_url(v),
    ),
}
ADDRESSES = frozenset({"otlp_http", "otlp_grpc", "listen"})
"""Settings that are HOST:PORT."""


def refuse_repeated_keys(text: str, where: str) -> None:
    """Cost: the file is parsed once. Needs PyYAML.

    Raises:
        ConfigError: a mapping has a key twice; names both lines.
        yaml.YAMLError: it is no YAML.
    """
    import yaml

    for mapping in _mappings(yaml.compose(text, Loader=yaml.SafeLoader), set()):
        lines: dict[str, int] = {}
        for key, _ in mapping.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                raise ConfigError(
                    describe(
                        where=f"{where}:{line}",
                        value=key.value,
                        expected=f"each key once, and line {lines[key.value]} has it",
                        remedy="Put what is under both under one of them.",
                    )
                )
            lines[key.value] = line


def _mappings(node: Any, view: set[int]) -> Iterator[Any]:
    """The mappings of a node and of all within it, each once: aliases may go in circles."""
    import yaml

    if not isinstance(node, yaml.CollectionNode) or id(node) in view:
        return
    view.add(id(node))
    if isinstance(node, yaml.MappingNode):
        yield node
        for pair in node.value:
            for part in pair:
                yield from _mappings(part, view)
        return
    for part in node.value:
        yield from _mappings(part, view)
