"""Which of OTLP's protocols the two signals travel by, from arguments and environment.

Order: argument > ``OTEL_STRAGGLER_PROTOCOL`` > ``OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`` and
``..._METRICS_PROTOCOL`` > ``OTEL_EXPORTER_OTLP_PROTOCOL`` > http/protobuf. The variables of others
may be meant for another program: where they cannot be followed, that is logged and http/protobuf
is used.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from otel_straggler.config import OtlpProtocol
from otel_straggler.errors import ConfigError, describe

PROTOCOLS: tuple[OtlpProtocol, ...] = get_args(OtlpProtocol)
HTTP_PORT = 4318
_LOG = logging.getLogger("otel_straggler")


@dataclass(frozen=True, slots=True)
class ChosenProtocol:
    """A protocol, and the argument or variable that named it; empty = the default."""

    protocol: OtlpProtocol = "http/protobuf"
    where: str = ""


def choose_protocols(
    env: Mapping[str, str], argument: str | None, own_port: int | None, *, is_used: bool
) -> dict[str, ChosenProtocol]:
    """The protocol of "TRACES" and of "METRICS".

    Args:
        env: the environment.
        argument: of ``configure()``.
        own_port: of an endpoint that was named to us.
        is_used: whether anything will be sent; if not, a missing package is no error.

    Raises:
        ConfigError: the argument or ``OTEL_STRAGGLER_PROTOCOL`` cannot be followed.
    """
    own = _own_choice(env, argument, is_used=is_used)
    if own is not None:
        return {"TRACES": own, "METRICS": own}
    told: set[str] = set()
    return {signal: _others_choice(signal, env, own_port, told) for signal in ("TRACES", "METRICS")}


def _own_choice(
    env: Mapping[str, str], argument: str | None, *, is_used: bool
) -> ChosenProtocol | None:
    where = "configure(protocol=...)" if argument is not None else "OTEL_STRAGGLER_PROTOCOL"
    value = argument if argument is not None else env.get(where, "").strip().lower() or None
    if value is None:
        return None
    for protocol in PROTOCOLS:
        if value == protocol:
            if is_used and protocol == "grpc" and (reason := _why_no_grpc()):
                raise ConfigError(f"{where}: got 'grpc', but {reason}.")
            return ChosenProtocol(protocol, where)
    message = describe(
        where=where,
        value=value,
        expected="'http/protobuf' or 'grpc'",
        remedy="Leave it out for http/protobuf.",
    )
    raise ConfigError(message)


def _others_choice(
    signal: str, env: Mapping[str, str], own_port: int | None, told: set[str]
) -> ChosenProtocol:
    for where in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        value = env.get(where, "").strip().lower()
        if not value:
            continue
        trouble = _why_not(value, own_port)
        if not trouble:
            return ChosenProtocol("grpc" if value == "grpc" else "http/protobuf", where)
        if where not in told:
            told.add(where)
            _LOG.warning("%s is %r, but %s. http/protobuf is used.", where, value, trouble)
        break
    return ChosenProtocol()


def _why_not(value: str, own_port: int | None) -> str:
    if value == "http/protobuf":
        return ""
    if value != "grpc":
        return "otel-straggler sends http/protobuf or grpc"
    if own_port == HTTP_PORT:
        return (
            f"port {HTTP_PORT} of the endpoint is that of OTLP over HTTP; "
            "OTEL_STRAGGLER_PROTOCOL settles which is meant"
        )
    return _why_no_grpc()


def _why_no_grpc() -> str:
    from otel_straggler.transport.grpc import why_unusable

    return why_unusable()
