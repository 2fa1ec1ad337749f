"""Versions of Python and packages, and whether they are supported."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from otel_straggler._version import __version__
from otel_straggler.client.gpu.reasons import Refusal, refusal_of
from otel_straggler.doctor.findings import Finding, info, ok, problem
from otel_straggler.native import NATIVE
from otel_straggler.strict_json import parse_json
from otel_straggler.torch_parts import FEATURES, TESTED, ReadFile, installed_files, release

OLDEST_PYTHON: Final = (3, 10)
REQUIRED: Final = {
    "numpy": "1.24",
    "opentelemetry-api": "1.20",
    "opentelemetry-exporter-otlp-proto-http": "1.20",
    "opentelemetry-proto": "1.20",
    "opentelemetry-sdk": "1.20",
    "protobuf": "4.25.8",
}


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the package: its use, and its packages with minimum versions."""

    use: str
    packages: dict[str, str]


EXTRAS: Final = {
    "cli": Extra("the command line", {"click": "8.1", "rich": "13"}),
    "grpc": Extra("configure(protocol='grpc')", {"grpcio": "1.60.2"}),
    "collector": Extra(
        "otel-straggler collector",
        {
            "cramjam": "2.8",
            "googleapis-common-protos": "1.56.4",
            "h2": "4.3",
            "httptools": "0.6.3",
            "PyYAML": "6",
            "uvloop": "0.20",
        },
    ),
}


def check_versions() -> Iterator[Finding]:
    yield ok("versions.otel-straggler", f"otel-straggler {__version__}.", __version__)
    yield check_python(sys.version_info[:3])
    for name, oldest in REQUIRED.items():
        yield check_package(name, oldest, installed(name))
    yield check_torch(installed("torch"))
    yield from check_torch_parts(installed("torch"), installed_files())
    for name, extra in EXTRAS.items():
        yield check_extra(name, extra)


def check_python(result: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, result))
    if result >= OLDEST_PYTHON:
        return ok("versions.python", f"Python {text} at {sys.executable}.", text)
    oldest = ".".join(map(str, OLDEST_PYTHON))
    sentence = f"Python {text} is older than {oldest}, the oldest that is supported."
    remedy = f"Use Python {oldest} or newer, for example: python{oldest} -m venv .venv"
    return problem("versions.python", sentence, remedy, text)


def check_package(name: str, oldest: str, result: str | None) -> Finding:
    """A required package."""
    remedy = f"pip install --upgrade '{name}>={oldest}'"
    if result is None:
        return problem(f"versions.{name}", f"{name} is not installed.", remedy)
    if release(result) < release(oldest):
        sentence = f"{name} {result} is older than {oldest}, the oldest that is supported."
        return problem(f"versions.{name}", sentence, remedy, result)
    return ok(f"versions.{name}", f"{name} {result}; supported from {oldest}.", result)


def check_torch(result: str | None) -> Finding:
    """Optional: a collector's host needs none."""
    if result is None:
        sentence = "torch is not installed for this Python: only a training process needs it."
        return info("versions.torch", sentence)
    return ok("versions.torch", f"torch {result}.", result)


def cuda_of_torch() -> str:
    """The version of CUDA that the installed torch was built for; empty: none. torch is not
    imported.

    >>> cuda_in("debug = False\\ncuda: Optional[str] = '13.0'\\n"), cuda_in("cuda = None")
    ('13.0', '')
    """
    read = installed_files()
    file = read("torch/version.py") if read is not None else None
    return cuda_in(file.decode("utf-8", "replace")) if file is not None else ""


def cuda_in(version_file: str) -> str:
    """In torch's ``version.py``."""
    line = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", version_file, re.MULTILINE)
    return line[1] if line else ""


def check_torch_parts(result: str | None, read: ReadFile | None) -> Iterator[Finding]:
    """What a training would lack with this torch; its files are read, it is not imported."""
    if result is None or read is None:
        return
    lacking = {each: each.missing(read) for each in FEATURES}
    lacking = {feature: parts for feature, parts in lacking.items() if parts}
    if not lacking:
        sentence = f"torch {result} has every private part that is used of it."
        yield ok("versions.torch_parts", sentence, [])
    for feature, parts in lacking.items():
        paths = [part.path for part in parts]
        needed = [part.since for part in parts if release(part.since) > release(result)]
        newest = max(needed, key=release, default="")
        remedy = f"pip install 'torch>={newest}'" if newest else ""
        sentence = (
            f"torch {result} lacks {', '.join(paths)}: needed for {feature.name}. "
            f"Without: {feature.lost}."
        )
        yield info("versions.torch_parts", sentence, paths, remedy)
    if release(result)[:2] > release(TESTED[-1])[:2]:
        sentence = f"torch {result} is newer than {TESTED[-1]}, the newest that is tested."
        yield info("versions.torch_tested", sentence, TESTED[-1])


def check_extra(name: str, extra: Extra) -> Finding:
    packages = extra.packages.items()
    lacking = [
        name for name, oldest in packages if release(installed(name) or "") < release(oldest)
    ]
    if not lacking:
        return ok(f"versions.extra_{name}", f"The extra [{name}] is complete: {extra.use}.", [])
    sentence = f"The extra [{name}] lacks {', '.join(lacking)}: needed for {extra.use} only."
    remedy = f"pip install 'otel-straggler[{name}]'"
    return info(f"versions.extra_{name}", sentence, lacking, remedy)


def installed(name: str) -> str | None:
    """The version of a distribution; None if there is none. Nothing is imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


DRIVER = "libcuda.so.1"
_TIMEOUT_S = 30.0
_SUCCESS = 0
WORKS: Final = "works"
NOT_TRIED: Final = "not_tried"


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of a probe.

    Attributes:
        cupti: code of why kernels cannot be timed; empty: they can.
        cupti_reported: the same as text.
        events: why sections cannot be timed by events; empty: they can.
        library, version: the libcupti that was used, and of its interface.
        attribution: whether it shows which section a kernel was launched in: ``WORKS``,
            ``NOT_TRIED``, or a code of why not.
    """

    cupti: str = ""
    cupti_reported: str = ""
    events: str = ""
    library: str = ""
    version: int = 0
    attribution: str = NOT_TRIED


def probe(path: str, folder: str, env: Mapping[str, str]) -> Probed:
    """Probe in another process.

    Args:
        path: of the libcupti to use; empty: search.
        folder: of the libcupti in torch's wheels; empty: none.
        env: of that process.
    """
    command = [sys.executable, "-m", "otel_straggler.doctor.versions", path, folder]
    try:
        ended = subprocess.run(  # noqa: S603  our own module
            command, env=dict(env), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return _broken(f"CUPTI or the driver did not answer within {_TIMEOUT_S:.0f} s")
    try:
        return Probed(**parse_json(ended.stdout.splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        how = f"signal {-ended.returncode}" if ended.returncode < 0 else f"code {ended.returncode}"
        return _broken(f"a process that tried it was ended by {how}")


def try_here(path: str, folder: str) -> Probed:
    """Probe in this process, which may crash."""
    if NATIVE is None:
        return _all(Refusal("no_extension"))
    refusal = _driver_refusal()
    if refusal is not None:
        return _all(refusal)
    events = _why_no_events()
    timer = NATIVE.KernelTimer(path, folder, DRIVER, False, False, False)
    library, version, _ = timer.library()
    reason = timer.start()
    if reason:
        result = refusal_of(reason)
        return Probed(result.code, result.message, events, library, version)
    attribution = try_attribution(timer)
    timer.stop(time.monotonic_ns() + 1_000_000_000)
    return Probed(events=events, library=library, version=version, attribution=attribution)


def try_attribution(timer: Any) -> str:
    """What ``Probed.attribution`` holds: some kernels by torch, in each way to attribute them, as
    in training. For that moment the process holds a context of CUDA, some hundred MB of the GPU.

    Args:
        timer: a ``_native.KernelTimer``; it has been started.
    """
    if not cuda_of_torch():
        return NOT_TRIED
    import torch

    try:
        if not torch.cuda.is_available():
            return NOT_TRIED
        numbers = torch.ones(16, device="cuda")
        while not _is_attributed(timer, numbers, torch.cuda.synchronize):
            timer.stop(time.monotonic_ns() + 1_000_000_000)
            if not timer.take_next_way() or timer.start():
                return "no_marks"
    except RuntimeError:  # the GPU has no memory left, or none that this process may use
        return NOT_TRIED
    return WORKS


def _is_attributed(timer: Any, numbers: Any, synchronize: Callable[[], object]) -> bool:
    """Whether kernels of a section come back as such, within two seconds."""
    for _ in range(20):
        timer.boundary(True, 1, 1)
        numbers.add_(1)
        timer.boundary(True, 0, 0)
        synchronize()
        timer.flush()
        state = timer.state()
        if state["is_proven"] or state["has_failed"]:
            break
        time.sleep(0.1)
    return bool(timer.state()["is_proven"])


def _why_no_events() -> str:
    assert NATIVE is not None
    try:
        NATIVE.EventTimer(DRIVER, None, -1).state()
    except RuntimeError:  # the driver lacks what it needs
        return "no_events"
    return ""


def _driver_refusal() -> Refusal | None:
    """Load and initialize the driver, without a context, so that no GPU memory is used."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return Refusal("no_driver", f"there is no CUDA driver here ({DRIVER} cannot be loaded)")
    init = getattr(driver, "cuInit", None)
    code = _SUCCESS if init is None else int(init(0))
    if code != _SUCCESS:
        return Refusal("no_cuda", f"the CUDA driver sees no GPU (cuInit gave {code})")
    return None


def _all(refusal: Refusal) -> Probed:
    return Probed(refusal.code, refusal.message, refusal.code)


def _broken(reported: str) -> Probed:
    return _all(Refusal("broken_cupti", reported))


def _main(path: str, folder: str) -> None:
    sys.stdout.write(json.dumps(asdict(try_here(path, folder))) + "\n")
    sys.stdout.flush()
    os._exit(0)  # nothing of CUDA is torn down


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2])
