"""Network, GPU and kernel log: what is run, that it is undone, and clear errors elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.errors import UnavailableError
from otel_straggler.inject.effects import Surroundings
from otel_straggler.inject.faults import Fault, Place
from otel_straggler.inject.injector import EFFECTS
from otel_straggler.inject.plan import InjectionPlan


def effect(text: str, **plan: str) -> Any:
    fault = Fault.parse(text)
    place = Place(rank=1, local_rank=1)
    return EFFECTS[fault.kind](fault, Surroundings(place, InjectionPlan(**plan), object))


def program(folder: Path, name: str, text: str) -> Path:
    """A program that writes its arguments to the file that is returned."""
    log = folder / f"{name}.log"
    file = folder / name
    file.write_text(f'#!/bin/sh\necho "$*" >> {log}\n{text}\n')
    file.chmod(0o755)
    return log


# --- network ------------------------------------------------------------------------------------

IN_NAMESPACE = """
import subprocess, sys
from otel_straggler.inject.effects import Surroundings
from otel_straggler.inject.faults import Fault, Place
from otel_straggler.inject.injector import EFFECTS
from otel_straggler.inject.plan import InjectionPlan
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
def shown():
    return subprocess.check_output(["tc", "qdisc", "show", "dev", "lo"], text=True)
before = shown()
fault = Fault.parse(sys.argv[1])
with EFFECTS[fault.kind](fault, Surroundings(Place(rank=0), InjectionPlan(interface="lo"), object)):
    print(shown().strip())
print(shown() == before)
"""


@pytest.mark.parametrize(
    ("text", "module", "shown"),
    [
        ("network_rate:10@rank1:0s+30s", "tbf", "rate 10Mbit"),
        ("network_delay:0.02@rank1:0s+30s", "netem", "delay 20ms"),
    ],
)
def test_a_network_namespace_is_slow_while_the_fault_lasts(text: str, module: str, shown: str):
    """tc really runs, in a namespace that ends with the test; after the fault all is as before."""
    unshare = ["unshare", "--net", sys.executable, "-c", IN_NAMESPACE, text]
    try:
        answer = subprocess.run(unshare, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        pytest.skip(
            "no unshare (apt install util-linux): network faults were not tried in a namespace"
        )
    if "Operation not permitted" in answer.stderr:
        pytest.skip(
            "no permission for a network namespace (run as root, CAP_SYS_ADMIN): "
            "network faults were not tried in one"
        )
    if "qdisc kind is unknown" in answer.stderr:
        pytest.skip(f"this kernel has no {module}: its fault was not tried in a namespace")
    assert answer.stdout.splitlines()[-1:] == ["True"], answer.stderr
    assert shown in answer.stdout


def test_tc_is_undone_also_where_it_was_only_partly_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The process that undoes it is there before the change."""
    log = program(tmp_path, "tc", 'case "$2" in add) echo "no netem" >&2; exit 2;; esac')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with (
        pytest.raises(UnavailableError, match="no netem") as refused,
        effect("network_delay:0.02@rank1:0s+30s", interface="eth7"),
    ):
        pytest.fail("it began")
    assert "sch_netem" in str(refused.value)
    assert log.read_text().splitlines() == [
        "qdisc show dev eth7 root",
        "qdisc add dev eth7 root netem delay 20000us",
        "qdisc del dev eth7 root",
    ]


def test_an_interface_that_somebody_has_shaped_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Undoing would remove what is not ours."""
    log = program(tmp_path, "tc", 'echo "qdisc htb 1: root refcnt 2"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with (
        pytest.raises(UnavailableError, match="qdisc htb"),
        effect("network_rate:10@rank1:0s", interface="eth7"),
    ):
        pytest.fail("it began")
    assert log.read_text().splitlines() == ["qdisc show dev eth7 root"]


@pytest.mark.parametrize(
    ("uid", "expected"), [(1000, "expected root"), (0, "a network namespace of the rank's own")]
)
def test_the_network_of_the_host_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, expected: str
):
    """Without root, or outside of a namespace, unless an interface is named."""
    log = program(tmp_path, "tc", "")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with (
        pytest.raises(UnavailableError) as refused,
        effect("network_delay:0.02@rank1:0s"),
    ):
        pytest.fail("it began")
    assert expected in str(refused.value)
    assert not log.exists()


# --- GPU ----------------------------------------------------------------------------------------


def test_a_power_cap_ends_with_the_limit_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of the GPU that the rank sees, by nvidia-smi's number."""
    log = program(tmp_path, "nvidia-smi", 'case "$*" in *query*) echo 700.00;; esac')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    with effect("gpu_power_cap:200@rank1:0s+30s"):
        assert log.read_text().splitlines()[-1] == "--id=6 --power-limit=200"
    assert log.read_text().splitlines()[-1] == "--id=6 --power-limit=700.00"


@pytest.mark.parametrize("kind", ["gpu_power_cap:200", "gpu_busy", "network_delay:0.1"])
def test_what_is_missing_is_named(kind: str, monkeypatch: pytest.MonkeyPatch):
    """No program, no GPU: an error that says so, and what to do."""
    monkeypatch.setenv("PATH", "/none")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(UnavailableError, match="expected") as refused, effect(f"{kind}@rank1:0s"):
        pytest.fail("it began")
    assert kind in str(refused.value)


def test_a_busy_gpu_works_until_the_fault_ends(monkeypatch: pytest.MonkeyPatch):
    """On the rank's device, in a stream of its own; a stand-in for CUDA counts the products."""
    products: list[int] = []

    class Matrix:
        def __matmul__(self, other: Matrix) -> Matrix:
            products.append(1)
            return other

    class Nothing:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Nothing:
            return self

        def __exit__(self, *_: object) -> None: ...
        def synchronize(self) -> None: ...

    devices: list[str] = []

    def ones(*_: int, device: str, dtype: object) -> Matrix:
        devices.append(device)
        return Matrix()

    cuda = types.SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, current_device=lambda: 0,
        Stream=Nothing, device=Nothing, stream=Nothing,
    )  # fmt: skip
    torch = types.SimpleNamespace(cuda=cuda, ones=ones, no_grad=Nothing, float16=None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with effect("gpu_busy@rank1:0s"):
        while len(products) < 3:
            pass
    done = len(products)
    assert devices == ["cuda:1"]
    assert len(products) == done


# --- kernel log ---------------------------------------------------------------------------------


def test_an_xid_is_a_line_of_the_driver_in_the_file_that_is_given(tmp_path: Path):
    """What watchdogs of XIDs look for."""
    log = tmp_path / "kern.log"
    log.write_text("before\n")
    with effect("xid:79@rank1:0s", kernel_log=str(log)):
        pass
    line = log.read_text().splitlines()[1]
    text = f"79, pid={os.getpid()}, name=python, GPU has fallen off the bus."
    assert line == f"NVRM: Xid (PCI:0000:3c:00): {text}"


def test_an_xid_needs_the_file():
    """The kernel's own log is nobody's to write by default."""
    with pytest.raises(UnavailableError, match="kernel_log=FILE"), effect("xid:79@rank1:0s"):
        pytest.fail("it began")
