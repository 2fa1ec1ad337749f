"""Arguments and environment to :class:`~otel_straggler.config.ClientSettings`.

Order for every setting: argument > ``OTEL_STRAGGLER_*`` > ``OTEL_*`` and the launcher > default.
"""

from __future__ import annotations

import math
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from otel_straggler.client.endpoints import (
    NO_ENDPOINTS,
    Endpoints,
    names_scorer,
    parse_pairs,
    resolve_endpoints,
)
from otel_straggler.client.identity import find_place, find_run_id
from otel_straggler.config import (
    DEFAULT_QUEUE_BYTES,
    GPU_WISHES,
    ClientSettings,
    GpuWish,
    Pairs,
)
from otel_straggler.errors import ConfigError, describe

_LARGEST_RANK = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments of ``configure()``, as given."""

    endpoint: str | None = None
    run_id: str | None = None
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    group: str | None = None
    service_name: str | None = None
    role: str | None = None
    page: bool | None = None
    team: str | None = None
    headers: Mapping[str, str] | None = None
    protocol: str | None = None
    heartbeat_s: float | None = None
    flush_s: float | None = None
    queue_bytes: int | None = None
    sample_steps: int | None = None
    span_budget: int | None = None
    exit_deadline_s: float | None = None
    strict: bool = False
    handle_sigterm: bool = True
    tracer_provider: object | None = None
    propagate_context: bool = False
    sdk_spans_per_s: float | None = None
    gpu_timing: str | None = None
    gpu_overhead: float | None = None
    evidence_dir: str | None = None
    evidence_after_s: float | None = None
    commands: str | None = None
    commands_token: str | None = None


def resolve_settings(given: Arguments, env: Mapping[str, str] | None = None) -> ClientSettings:
    """Settle every setting.

    Raises:
        ConfigError: an argument or an ``OTEL_STRAGGLER_*`` variable is wrong; says how to fix it.
    """
    env = os.environ if env is None else env
    is_disabled = is_switched_off(env)
    endpoints = _endpoints(given, env, is_used=not is_disabled)
    place = find_place(env)
    resource = parse_pairs(env.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    rank = _count("rank", given.rank, 0, _LARGEST_RANK, place.rank or 0)
    is_alone = place.rank is None and given.rank is None
    found_size = place.world_size if place.world_size is not None else int(is_alone)
    world_size = _count("world_size", given.world_size, 1, _LARGEST_RANK, found_size)
    _check_rank(rank, world_size)
    return ClientSettings(
        run_id=_text("run_id", given.run_id, env) or find_run_id(env),
        attempt=place.attempt,
        group=_text("group", given.group, env),
        rank=rank,
        local_rank=_count(
            "local_rank", given.local_rank, 0, _LARGEST_RANK, _or(place.local_rank, -1)
        ),
        world_size=world_size,
        node=resource.get("host.name") or socket.gethostname(),
        service_name=_service_name(given, env, resource),
        role=_text("role", given.role, env),
        page=_page(given, env),
        team=_text("team", given.team, env),
        resource=_sorted_pairs(resource),
        traces=endpoints.traces,
        metrics=endpoints.metrics,
        is_trusted=endpoints.is_trusted,
        is_disabled=is_disabled,
        heartbeat_s=_seconds("heartbeat_s", given.heartbeat_s, env, 5.0),
        flush_s=_seconds("flush_s", given.flush_s, env, 1.0),
        histogram_s=_histogram_s(env),
        kernel_interval_s=_seconds("kernel_interval_s", None, env, 10.0),
        kernel_cells=_whole_number("kernel_cells", env, 1, 8_192, 64),
        queue_bytes=_count("queue_bytes", given.queue_bytes, 1, 2**40, DEFAULT_QUEUE_BYTES),
        sample_steps=_count("sample_steps", given.sample_steps, 1, 2**31, 100),
        span_budget=_count("span_budget", given.span_budget, 0, 2**31, 200),
        exit_deadline_s=_seconds("exit_deadline_s", given.exit_deadline_s, env, 2.0),
        strict=_flag("strict", given.strict),
        handle_sigterm=_flag("handle_sigterm", given.handle_sigterm),
        tracer_provider=_tracer_provider(given),
        propagate_context=_with_provider("propagate_context", given, given.propagate_context),
        sdk_spans_per_s=_sdk_spans_per_s(given),
        gpu_timing=_gpu_timing(given, env),
        gpu_overhead=_gpu_overhead(given, env),
        cupti_path=env.get("OTEL_STRAGGLER_CUPTI", "").strip(),
        evidence_dir=_text("evidence_dir", given.evidence_dir, env),
        evidence_after_s=_seconds_or_never("evidence_after_s", given.evidence_after_s, env),
        commands=_commands(given, env),
        commands_token=_token(given, env),
    )


def _endpoints(given: Arguments, env: Mapping[str, str], *, is_used: bool) -> Endpoints:
    """With a provider the application sends, unless a collector is named as well."""
    if given.tracer_provider is not None and not names_scorer(env, given.endpoint):
        return NO_ENDPOINTS
    return resolve_endpoints(env, given.endpoint, given.headers, given.protocol, is_used=is_used)


def _tracer_provider(given: Arguments) -> object | None:
    if given.tracer_provider is None:
        return None
    from otel_straggler.client.sdk_spans import checked_provider

    return checked_provider(given.tracer_provider)


def _with_provider(name: str, given: Arguments, value: bool) -> bool:
    if not _flag(name, value) or given.tracer_provider is not None:
        return value
    raise _wrong(
        name,
        value,
        "a tracer_provider beside it: the one whose tracers start the spans",
        "Pass it, for example tracer_provider='global', or leave this out.",
    )


def _sdk_spans_per_s(given: Arguments) -> float:
    value = given.sdk_spans_per_s
    if value is None:
        return 100.0
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 < value <= 1_000_000 and given.tracer_provider is not None:
        return float(value)
    raise _wrong(
        "sdk_spans_per_s",
        value,
        "a number above 0, at most a million, and a tracer_provider beside it",
        "Leave it out for the default of 100.",
    )


def _gpu_timing(given: Arguments, env: Mapping[str, str]) -> GpuWish:
    wish = given.gpu_timing
    where = "configure(gpu_timing=...)"
    if wish is None:
        wish = env.get("OTEL_STRAGGLER_GPU_TIMING", "").strip().lower() or "auto"
        where = "OTEL_STRAGGLER_GPU_TIMING"
    if wish in GPU_WISHES:
        return wish
    remedy = "Leave it out for 'auto'."
    expected = "one of " + ", ".join(GPU_WISHES)
    raise ConfigError(describe(where=where, value=wish, expected=expected, remedy=remedy))


def _gpu_overhead(given: Arguments, env: Mapping[str, str]) -> float:
    value: object = given.gpu_overhead
    where = "configure(gpu_overhead=...)"
    if value is None:
        text = env.get("OTEL_STRAGGLER_GPU_OVERHEAD", "").strip()
        where, value = "OTEL_STRAGGLER_GPU_OVERHEAD", _float_or_text(text or "0.01")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 <= value <= 1:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    expected = "a part of the step from 0 to 1"
    remedy = "Leave it out for 0.01, which is 1 %; 0 is no limit."
    raise ConfigError(describe(where=where, value=value, expected=expected, remedy=remedy))


def _page(given: Arguments, env: Mapping[str, str]) -> bool | None:
    """None if nobody says it; ``OTEL_RESOURCE_ATTRIBUTES`` may still."""
    if given.page is not None:
        return _flag("page", given.page)
    text = env.get("OTEL_STRAGGLER_PAGE", "").strip().lower()
    if text in {"", "true", "false"}:
        return text == "true" if text else None
    remedy = "Set it to false for a run for which nobody is to be called."
    where = "OTEL_STRAGGLER_PAGE"
    raise ConfigError(describe(where=where, value=text, expected="true or false", remedy=remedy))


def is_switched_off(env: Mapping[str, str]) -> bool:
    """Whether the user switched all telemetry off."""
    return _is_on(env, "OTEL_SDK_DISABLED") or _is_on(env, "OTEL_STRAGGLER_DISABLED")


def _service_name(given: Arguments, env: Mapping[str, str], resource: Mapping[str, str]) -> str:
    named = _text("service_name", given.service_name, env)
    script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else "python"
    return (
        named
        or env.get("OTEL_SERVICE_NAME", "").strip()
        or resource.get("service.name", "")
        or script
    )


def _text(name: str, value: object, env: Mapping[str, str]) -> str:
    if value is None:
        return env.get(f"OTEL_STRAGGLER_{name.upper()}", "").strip()
    if isinstance(value, str):
        return value
    raise _wrong(name, value, "a text", "Leave it out for the default.")


def _count(name: str, value: object, least: int, most: int, default: int) -> int:
    if value is None:
        return default
    if type(value) is int and least <= value <= most:
        return value
    raise _wrong(
        name, value, f"a whole number from {least} to {most}", "Leave it out for the default."
    )


def _whole_number(name: str, env: Mapping[str, str], least: int, most: int, default: int) -> int:
    """Of a variable alone."""
    variable = f"OTEL_STRAGGLER_{name.upper()}"
    text = env.get(variable, "").strip()
    if not text:
        return default
    if text.isdecimal() and least <= int(text) <= most:
        return int(text)
    expected = f"a whole number from {least} to {most}"
    remedy = f"Leave it out for the default of {default}."
    raise ConfigError(describe(where=variable, value=text, expected=expected, remedy=remedy))


def _check_rank(rank: int, world_size: int) -> None:
    if world_size and rank >= world_size:
        expected = f"a rank below the world size of {world_size}"
        raise _wrong("rank", rank, expected, "Ranks count from 0; check RANK and WORLD_SIZE.")


def _seconds(name: str, value: object, env: Mapping[str, str], default: float) -> float:
    where = f"configure({name}=...)"
    if value is None:
        variable = f"OTEL_STRAGGLER_{name.upper()}"
        text = env.get(variable, "").strip()
        if not text:
            return default
        where, value = variable, _float_or_text(text)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and 0 < value <= 86_400:  # type: ignore[arg-type,operator]
        return float(value)  # type: ignore[arg-type]
    message = describe(
        where=where,
        value=value,
        expected="seconds above 0, at most a day",
        remedy=f"Leave it out for the default of {default} s.",
    )
    raise ConfigError(message)


def _seconds_or_never(name: str, value: object, env: Mapping[str, str]) -> float:
    """Like :func:`_seconds`, and 0, which is also the default, means never."""
    if value is None:
        value = _float_or_text(env.get(f"OTEL_STRAGGLER_{name.upper()}", "").strip() or "0")
    is_zero = isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0
    return 0.0 if is_zero else _seconds(name, value, env, 0.0)


def _commands(given: Arguments, env: Mapping[str, str]) -> bool:
    wish, where = given.commands, "configure(commands=...)"
    if wish is None:
        where = "OTEL_STRAGGLER_COMMANDS"
        wish = env.get(where, "").strip().lower() or "off"
    if wish in {"on", "off"}:
        return wish == "on"
    raise ConfigError(
        describe(where=where, value=wish, expected="on or off", remedy="Leave it out for off.")
    )


def _token(given: Arguments, env: Mapping[str, str]) -> str:
    """It goes into a header. The message does not show it."""
    token = _text("commands_token", given.commands_token, env)
    if len(token) <= 500 and all("!" <= letter <= "~" for letter in token):
        return token
    where = "OTEL_STRAGGLER_COMMANDS_TOKEN"
    if given.commands_token is not None:
        where = "configure(commands_token=...)"
    expected = "at most 500 letters, digits and signs of ASCII, without blanks"
    remedy = "Make one, for example with: openssl rand -hex 32"
    raise ConfigError(describe(where=where, value="...", expected=expected, remedy=remedy))


def _float_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _histogram_s(env: Mapping[str, str]) -> float:
    """``OTEL_METRIC_EXPORT_INTERVAL`` is in milliseconds; what is not a number is not used."""
    text = env.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    return int(text) / 1000 if text.isdigit() and int(text) > 0 else 60.0


def _flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(name, value, "True or False", "Leave it out for the default.")


def _is_on(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").strip().lower() in {"true", "1"}


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _sorted_pairs(pairs: Mapping[str, str]) -> Pairs:
    return tuple(sorted(pairs.items()))


def _wrong(name: str, value: object, expected: str, remedy: str) -> ConfigError:
    where = f"configure({name}=...)"
    return ConfigError(describe(where=where, value=value, expected=expected, remedy=remedy))
