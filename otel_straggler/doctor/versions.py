"""Python and packages: what is there, and whether it is in the supported range."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from otel_straggler._version import __version__
from otel_straggler.doctor.findings import Finding, info, ok, problem

OLDEST_PYTHON: Final = (3, 10)
REQUIRED: Final = {
    "numpy": "1.24",
    "opentelemetry-api": "1.20",
    "opentelemetry-exporter-otlp-proto-http": "1.20",
    "opentelemetry-proto": "1.20",
    "opentelemetry-sdk": "1.20",
    "protobuf": "4.21.1",
    "requests": "2.28",
}


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the package: what for, and what it needs at least."""

    use: str
    packages: dict[str, str]


EXTRAS: Final = {
    "cli": Extra("the command line", {"click": "8.1", "rich": "13"}),
    "grpc": Extra("configure(protocol='grpc')", {"grpcio": "1.60"}),
    "collector": Extra(
        "otel-straggler collector",
        {
            "googleapis-common-protos": "1.56.4",
            "grpcio": "1.60",
            "httptools": "0.6.3",
            "PyYAML": "6",
            "uvloop": "0.19",
        },
    ),
}


def check_versions() -> Iterator[Finding]:
    """What is installed here."""
    yield ok("versions.otel-straggler", f"otel-straggler {__version__}.", __version__)
    yield check_python(sys.version_info[:3])
    for name, oldest in REQUIRED.items():
        yield check_package(name, oldest, installed(name))
    yield check_torch(installed("torch"))
    for name, extra in EXTRAS.items():
        yield check_extra(name, extra)


def check_python(found: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, found))
    if found >= OLDEST_PYTHON:
        return ok("versions.python", f"Python {text} at {sys.executable}.", text)
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return problem(
        "versions.python",
        f"Python {text} is older than {oldest}, the oldest that is supported.",
        f"Use Python {oldest} or newer, for example: python{oldest} -m venv .venv",
        text,
    )


def check_package(name: str, oldest: str, found: str | None) -> Finding:
    """One that the package cannot do without."""
    remedy = f"pip install --upgrade '{name}>={oldest}'"
    if found is None:
        return problem(f"versions.{name}", f"{name} is not installed.", remedy)
    if release(found) < release(oldest):
        sentence = f"{name} {found} is older than {oldest}, the oldest that is supported."
        return problem(f"versions.{name}", sentence, remedy, found)
    return ok(f"versions.{name}", f"{name} {found}; supported from {oldest}.", found)


def check_torch(found: str | None) -> Finding:
    """Optional: a collector's host needs none."""
    if found is None:
        sentence = "torch is not installed for this Python: only a training process needs it."
        return info("versions.torch", sentence)
    return ok("versions.torch", f"torch {found}.", found)


def check_extra(name: str, extra: Extra) -> Finding:
    """Complete, or what is missing and for what."""
    lacking = [
        package for package, oldest in extra.packages.items() if _is_lacking(package, oldest)
    ]
    if not lacking:
        return ok(f"versions.extra_{name}", f"The extra [{name}] is complete: {extra.use}.", [])
    return info(
        f"versions.extra_{name}",
        f"The extra [{name}] lacks {', '.join(lacking)}: needed for {extra.use} only.",
        lacking,
        f"pip install 'otel-straggler[{name}]'",
    )


def _is_lacking(package: str, oldest: str) -> bool:
    found = installed(package)
    return found is None or release(found) < release(oldest)


def installed(name: str) -> str | None:
    """The version of a distribution, None if there is none. Nothing is imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def release(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with.

    >>> release("2.13.0+cpu") > release("2.9"), release("4.25.0rc1")
    (True, (4, 25, 0))
    """
    numbers = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()
