"""What faults do to the network, the GPU and the kernel log of their rank."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from otel_straggler.errors import UnavailableError
from otel_straggler.inject.effects import Effect, Surroundings
from otel_straggler.inject.faults import Fault
from otel_straggler.inject.keeper import Keeper

_COMMAND_S: Final = 10.0
_MATRIX: Final = 4096
_NAMESPACE: Final = Path("/proc/self/ns/net")
_XID_TEXTS: Final = {
    13: "Graphics Engine Exception", 31: "MMU fault", 43: "reset channel",
    48: "DBE (double bit error)", 63: "row remapping event", 74: "NVLink error",
    79: "GPU has fallen off the bus.", 94: "contained ECC error", 95: "uncontained ECC error",
    119: "timeout waiting for RPC from GSP!",
}  # fmt: skip


# --- network ------------------------------------------------------------------------------------


@contextlib.contextmanager
def network(fault: Fault, of: Surroundings) -> Iterator[None]:
    """``tc`` on one interface, or all of a network namespace that is not the host's."""
    tc = _program("tc", fault, "Install iproute2.")
    if os.geteuid() != 0:
        _refuse(fault, f"user {os.geteuid()}", "root", "Run the rank as root in its namespace.")
    interfaces = [of.plan.interface] if of.plan.interface else _own_interfaces(fault)
    for name in interfaces:
        _check_free(tc, fault, name)
    undo = [("run", tc, "qdisc", "del", "dev", name, "root") for name in interfaces]
    keeper = Keeper(undo, fault.lasts_s)
    try:
        for name in interfaces:
            _run([tc, "qdisc", "add", "dev", name, "root", *_discipline(fault)], fault)
        yield
    finally:
        keeper.close()


def _discipline(fault: Fault) -> list[str]:
    if fault.kind == "network_delay":
        return ["netem", "delay", f"{fault.size * 1e6:.0f}us"]
    return ["tbf", "rate", f"{fault.size * 1e6:.0f}bit", "burst", "32kbit", "latency", "400ms"]


def _check_free(tc: str, fault: Fault, interface: str) -> None:
    """Refuse an interface that somebody has set up: undoing would remove that."""
    shown = _run([tc, "qdisc", "show", "dev", interface, "root"], fault)
    if any(f"qdisc {name} " in shown for name in ("netem", "tbf", "htb", "hfsc", "prio")):
        expected = "an interface without a traffic class of its own"
        _refuse(fault, f"{interface}: {shown.strip()}", expected, "Name another with interface=.")


def _own_interfaces(fault: Fault) -> list[str]:
    try:
        is_of_host = _NAMESPACE.readlink() == Path("/proc/1/ns/net").readlink()
    except OSError:
        is_of_host = True
    if is_of_host:
        _refuse(
            fault,
            "the network namespace of process 1",
            "a network namespace of the rank's own, or the name of an interface",
            "Start the rank with 'ip netns exec NAME', or write interface=eth0 into the plan.",
        )
    names = (path.name for path in Path("/sys/class/net").iterdir())
    return sorted(name for name in names if _is_up(name))


def _is_up(interface: str) -> bool:
    try:
        return bool(int(Path(f"/sys/class/net/{interface}/flags").read_text(), 16) & 1)
    except (OSError, ValueError):
        return False


# --- GPU ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def gpu_busy(fault: Fault, of: Surroundings) -> Iterator[None]:
    """Matrix products on a stream of their own, two at most in the queue."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        _refuse(fault, "no CUDA in this process", "a rank that trains on a GPU", _ON_CPU)
    device = torch.cuda.current_device() if of.place.local_rank < 0 else of.place.local_rank
    device = device % torch.cuda.device_count()
    ended = threading.Event()

    def work() -> None:
        stream = torch.cuda.Stream(device)
        with torch.cuda.device(device), torch.cuda.stream(stream), torch.no_grad():
            a = torch.ones(_MATRIX, _MATRIX, device=f"cuda:{device}", dtype=torch.float16)
            while not ended.is_set():
                a @ a
                stream.synchronize()

    thread = threading.Thread(target=work, name="otel-straggler-busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_COMMAND_S)


@contextlib.contextmanager
def power_cap(fault: Fault, of: Surroundings) -> Iterator[None]:
    """``nvidia-smi --power-limit``, and the limit of before at the end."""
    smi = _program("nvidia-smi", fault, _ON_CPU)
    gpu = _gpu_of(of.place.local_rank)
    asked = [smi, f"--id={gpu}", "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
    before = _run(asked, fault).strip()
    keeper = Keeper([("run", smi, f"--id={gpu}", f"--power-limit={before}")], fault.lasts_s)
    try:
        _run([smi, f"--id={gpu}", f"--power-limit={fault.size:g}"], fault)
        yield
    finally:
        keeper.close()


def _gpu_of(local_rank: int) -> str:
    """The rank's GPU as nvidia-smi counts."""
    seen = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
    index = max(local_rank, 0)
    return seen[index % len(seen)] if seen else str(index)


# --- kernel log ---------------------------------------------------------------------------------


@contextlib.contextmanager
def xid(fault: Fault, of: Surroundings) -> Iterator[None]:
    """One line, as NVIDIA's driver writes it. A log is not undone."""
    if not of.plan.kernel_log:
        remedy = "Write kernel_log=FILE into the plan: the file that your watchdog reads."
        _refuse(fault, "no kernel log", "the file to write to", remedy)
    number = int(fault.size)
    bus = f"PCI:0000:{0x3B + max(of.place.local_rank, 0):02x}:00"
    text = _XID_TEXTS.get(number, "injected")
    with Path(of.plan.kernel_log).open("a") as file:
        file.write(f"NVRM: Xid ({bus}): {number}, pid={os.getpid()}, name=python, {text}\n")
    yield


# --- programs -----------------------------------------------------------------------------------

_ON_CPU: Final = "Leave this fault out of the plan where ranks have no NVIDIA GPU."


def _program(name: str, fault: Fault, remedy: str) -> str:
    path = shutil.which(name)
    if path is None:
        _refuse(fault, f"no {name} on PATH", f"the program {name}", remedy)
    return path


def _run(command: Sequence[str], fault: Fault) -> str:
    """Its output.

    Raises:
        UnavailableError: it failed; with what it said.
    """
    try:
        answer = subprocess.run(  # noqa: S603  found on PATH, arguments of our own
            command, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        _refuse(fault, str(error), f"that '{' '.join(command)}' runs", "Run it by hand.")
    if answer.returncode:
        reported = (answer.stderr or answer.stdout).strip().replace("\n", " ")
        remedy = "Run it by hand; kernel modules such as sch_netem may be missing."
        _refuse(fault, reported, f"that '{' '.join(command)}' succeeds", remedy)
    return answer.stdout


def _refuse(fault: Fault, value: str, expected: str, remedy: str) -> NoReturn:
    raise UnavailableError.of(f"fault {fault}", value, expected, remedy)


OF_HOST: Final[dict[str, Effect]] = {
    "network_delay": network,
    "network_rate": network,
    "gpu_busy": gpu_busy,
    "gpu_power_cap": power_cap,
    "xid": xid,
}
"""By kind."""
