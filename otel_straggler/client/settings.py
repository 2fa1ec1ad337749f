"""Arguments and environment to :class:`~otel_straggler.config.ClientSettings`.

Order for every setting: argument > ``OTEL_STRAGGLER_*`` > ``OTEL_*`` and the launcher > default.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from otel_straggler.client.discovery import discover_endpoints, may_be_shared_later
from otel_straggler.client.endpoints import (
    NO_ENDPOINTS,
    Endpoints,
    names_scorer,
    parse_pairs,
    resolve_endpoints,
)
from otel_straggler.client.identity import (
    detect_rank_numbers,
    explain_run_id,
    find_run_id,
    initialised_process_group,
    is_rank_of_process,
    other_rank_numbers,
    restarts_left,
)
from otel_straggler.config import BY_FIELD, ClientSettings
from otel_straggler.errors import ConfigError
from otel_straggler.strict_json import whole_number

_LOG = logging.getLogger("otel_straggler")


def resolve_settings(
    given: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> ClientSettings:
    """Settle every setting from the arguments of ``configure()`` and the environment.

    Raises:
        ConfigError: an argument or an ``OTEL_STRAGGLER_*`` variable is wrong; says how to fix it.
    """
    env = os.environ if env is None else env
    is_disabled = is_switched_off(env)
    endpoints = _endpoints(given, env, is_used=not is_disabled)
    resource = parse_pairs(env.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    values: dict[str, Any] = {
        name: setting.value(given, env) for name, setting in BY_FIELD.items() if setting.kind
    }
    values |= _launched_numbers(given, env)
    _check_rank(values["rank"], values["world_size"])
    if values["discovery"] and not is_disabled:
        endpoints = discover_endpoints(endpoints, env)
    values["run_id"] = values["run_id"] or find_run_id(env)
    values["service_name"] = values["service_name"] or _service_name(env, resource)
    return ClientSettings(
        **values,
        node=node_name(env),
        restarts_left=restarts_left(env),
        resource=tuple(sorted(resource.items())),
        traces=endpoints.traces,
        metrics=endpoints.metrics,
        is_trusted=endpoints.is_trusted,
        is_disabled=is_disabled,
        histogram_s=_histogram_s(env),
        tracer_provider=_tracer_provider(given),
    )


def node_name(env: Mapping[str, str]) -> str:
    """``host.name`` of ``OTEL_RESOURCE_ATTRIBUTES``, else the host name."""
    resource = parse_pairs(env.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    return resource.get("host.name") or socket.gethostname()


def is_identity_known(
    given: Mapping[str, Any], settings: ClientSettings, env: Mapping[str, str] | None = None
) -> bool:
    """Whether rank and run are final, and no guess until torch.distributed is initialised."""
    env = os.environ if env is None else env
    rank = detect_rank_numbers(env)["rank"].value
    is_sure = initialised_process_group() is not None or is_rank_of_process(env)
    if given.get("rank") is None and (rank is None or not is_sure):
        return False
    is_named = bool(BY_FIELD["run_id"].value(given, env)) or explain_run_id(env) != ("", "")
    return is_named or settings.world_size <= 1


def is_address_known(
    given: Mapping[str, Any], settings: ClientSettings, env: Mapping[str, str] | None = None
) -> bool:
    """Whether the collector's address is final, and need not be shared when torch.distributed is
    initialised."""
    env = os.environ if env is None else env
    if settings.is_disabled or not settings.discovery or settings.world_size <= 1:
        return True
    is_first = initialised_process_group() is None
    endpoints = _endpoints(given, env, is_used=True)
    return not (is_first and may_be_shared_later(endpoints, settings.rank, env))


def is_switched_off(env: Mapping[str, str]) -> bool:
    names = ("OTEL_SDK_DISABLED", "OTEL_STRAGGLER_DISABLED")
    values = [env.get(name, "").strip().lower() for name in names]
    return "true" in values or "1" in values


def _endpoints(given: Mapping[str, Any], env: Mapping[str, str], *, is_used: bool) -> Endpoints:
    """With a provider the application sends, unless a collector is named as well."""
    endpoint = given.get("endpoint")
    if given.get("tracer_provider") is not None and not names_scorer(env, endpoint):
        return NO_ENDPOINTS
    return resolve_endpoints(
        env, endpoint, given.get("headers"), given.get("protocol"), is_used=is_used
    )


def _launched_numbers(given: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, int]:
    """Rank and world as the launcher says them, where no argument does."""
    result = {name: number.value for name, number in detect_rank_numbers(env).items()}
    if given.get("rank") is None and (others := other_rank_numbers(env)):
        _warn_once(others)
    if result["world_size"] is None and result["rank"] is None and given.get("rank") is None:
        result["world_size"] = 1
    return {n: v for n, v in result.items() if v is not None and given.get(n) is None}


@lru_cache(maxsize=1)
def _warn_once(others: str) -> None:
    _LOG.warning("otel-straggler: %s", others)


def _check_rank(rank: int, world_size: int) -> None:
    if world_size and rank >= world_size:
        raise ConfigError.of(
            "configure(rank=...)",
            rank,
            f"a rank below the world size of {world_size}",
            "Ranks count from 0; check RANK and WORLD_SIZE.",
        )


def _tracer_provider(given: Mapping[str, Any]) -> object | None:
    provider = given.get("tracer_provider")
    if provider is not None:
        from otel_straggler.client.sdk_spans import checked_provider

        return checked_provider(provider)
    rate = given.get("sdk_spans_per_s")
    if rate is not None:
        raise BY_FIELD["sdk_spans_per_s"].refusal("configure(sdk_spans_per_s=...)", rate)
    if given.get("propagate_context"):
        raise ConfigError.of(
            "configure(propagate_context=...)",
            True,
            "a tracer_provider with it: the one whose tracers start the spans",
            "Pass it, for example tracer_provider='global', or leave this out.",
        )
    return None


def _service_name(env: Mapping[str, str], resource: Mapping[str, str]) -> str:
    script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else "python"
    return env.get("OTEL_SERVICE_NAME", "").strip() or resource.get("service.name", "") or script


def _histogram_s(env: Mapping[str, str]) -> float:
    """From milliseconds; what is not a number is not used."""
    text = env.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    return (whole_number(text) or 60_000) / 1000
