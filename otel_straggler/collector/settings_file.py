"""Settings from a YAML file and flags: flags win over the file, the file over the defaults."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from otel_straggler.collector.alerts_settings import RULES_OF_KIND
from otel_straggler.collector.commands_settings import with_token
from otel_straggler.collector.notify_settings import check_notify
from otel_straggler.collector.setting_rules import ADDRESSES, RULES
from otel_straggler.collector.settings import CollectorSettings, parse_address
from otel_straggler.collector.yaml_keys import refuse_repeated_keys
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
