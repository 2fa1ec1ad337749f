"""E19: the checkpoint manager with a state on the GPU: that it saves, how long a save blocks beside
PyTorch's own in the same process, and that what is restored is what was saved, bit for bit."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook

WIDTH, LAYERS = 8192, 2
"""With AdamW's moments 1.6 GB in fp32."""
FAKED_WIDTH = 128
SAVES, STEPS_BETWEEN = 3, 12
IN_MEMORY = Path("/dev/shm")
"""On a disk, the disk would be measured."""
ROOM_BYTES = 8 << 30
THEIRS = 2


def measure(notebook: Notebook) -> None:
    """One process: PyTorch's save and asynchronous save, then ours, then a restore."""
    with arms_of(__name__, ("manager",), {}) as arms:
        reported = arms.round(0, 75, {"manager": {}}).get("manager")
        notebook.failures(arms.failures)
    if reported is None:
        return
    notebook.fact("found", reported)
    saved, blocked_s = reported["saved_steps"], reported["blocked_s"]
    notebook.figure("state", reported["bytes"] / 1e9)
    notebook.figure("saves that were committed", len(saved))
    notebook.figure("restored is what was saved", int(reported["is_equal"]))
    notebook.figure("first save blocks", blocked_s[0])
    notebook.figure("later saves block", statistics.median(blocked_s[1:]))
    notebook.figure("async_save blocks", reported["async_blocked_s"][-1])
    notebook.figure("dcp.save takes", reported["dcp_s"])
    notebook.figure("async_save takes", reported["async_s"][-1])
    notebook.figure("restore takes", reported["restore_s"])
    theirs = reported["async_blocked_s"][-1]
    notebook.figure("later saves block, of async_save", statistics.median(blocked_s[1:]) / theirs)


class Arm:
    """A training with a state that is worth saving."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del name, options
        self._cuda = cuda()
        self._cuda.begin()
        torch = self._cuda.torch
        self._torch, dist = torch, torch.distributed
        backend = "gloo" if self._cuda.is_fake else "cpu:gloo,cuda:nccl"
        dist.init_process_group(
            backend, store=dist.TCPStore("127.0.0.1", 0, 1, is_master=True), rank=0, world_size=1
        )
        width = FAKED_WIDTH if self._cuda.is_fake else WIDTH
        layers = [torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS)]
        self._model = torch.nn.Sequential(*layers).to(self._cuda.device)
        fused = {} if self._cuda.is_fake else {"fused": True}
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4, **fused)
        self._x = torch.randn(64, width, device=self._cuda.device)
        has_room = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES
        self._root = Path(tempfile.mkdtemp(prefix="e19-", dir=IN_MEMORY if has_room else None))

    def turn(self) -> dict[str, Any]:
        """Seconds of each, steps that were saved, and whether the restored state is equal."""
        try:
            for _ in range(3):
                self._step()
            theirs = self._theirs()
            ours = self._ours()
        finally:
            shutil.rmtree(self._root, ignore_errors=True)
        size = sum(3 * p.numel() * p.element_size() for p in self._model.parameters())
        return {"bytes": size, **theirs, **ours}

    def _theirs(self) -> dict[str, Any]:
        from torch.distributed import checkpoint as dcp

        dcp_s = self._timed(lambda: dcp.save(self._plain(), checkpoint_id=self._root / "dcp"))
        shutil.rmtree(self._root / "dcp")
        blocked_s, whole_s = [], []
        for at in range(THEIRS):
            folder = self._root / f"async{at}"
            began_s = time.perf_counter()
            saving = dcp.async_save(self._plain(), checkpoint_id=folder)
            blocked_s.append(time.perf_counter() - began_s)
            saving.result()
            whole_s.append(time.perf_counter() - began_s)
            shutil.rmtree(folder)
        return {"dcp_s": dcp_s, "async_blocked_s": blocked_s, "async_s": whole_s}

    def _ours(self) -> dict[str, Any]:
        from otel_straggler.checkpoint import Manager, training_state

        state = training_state(self._model, self._optimizer)
        blocked_s, step_s, saved_steps = [], [], []
        folder = self._root / "managed"
        last = SAVES * STEPS_BETWEEN
        with Manager(folder, every_steps=STEPS_BETWEEN, keep=SAVES) as manager:
            for step in range(1, last + 1):
                step_s.append(self._timed(self._step))
                began_s = time.perf_counter()
                manager.step(step, state)
                if step % STEPS_BETWEEN == 0:
                    blocked_s.append(time.perf_counter() - began_s)
                    # As in a run where saves are minutes apart.
                    saved_steps += [step] if manager.wait() is not None else []
        saved = self._values()
        self._spoil()
        with Manager(folder, keep=SAVES) as manager:
            restored: list[int | None] = []
            restore_s = self._timed(lambda: restored.append(manager.restore(state)))
        return {
            "blocked_s": blocked_s,
            "step_s": statistics.median(step_s),
            "saved_steps": saved_steps,
            "restored_step": restored[0],
            "restore_s": restore_s,
            "is_equal": restored[0] == last and self._are_equal(saved),
        }

    def _step(self) -> None:
        self._optimizer.zero_grad()
        self._model(self._x).square().mean().backward()
        self._optimizer.step()

    def _plain(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer}

    def _tensors(self) -> list[Any]:
        moments = [self._optimizer.state[p] for p in self._model.parameters()]
        tensors = [v for one in moments for _, v in sorted(one.items()) if hasattr(v, "numel")]
        return [*self._model.parameters(), *tensors]

    def _values(self) -> list[Any]:
        return [tensor.detach().clone() for tensor in self._tensors()]

    def _spoil(self) -> None:
        with self._torch.no_grad():
            for tensor in self._tensors():
                tensor.add_(1.0)

    def _are_equal(self, saved: list[Any]) -> bool:
        pairs = zip(saved, self._tensors(), strict=True)
        return all(bool(self._torch.equal(was, now.to(was.device))) for was, now in pairs)

    def _timed(self, work: Callable[[], Any]) -> float:
        self._cuda.synchronize()
        began_s = time.perf_counter()
        work()
        self._cuda.synchronize()
        return time.perf_counter() - began_s

    def finish(self) -> dict[str, Any]:
        return {}


make_arm = Arm
EXPERIMENT = Experiment(
    key="E19",
    question="Whether checkpoints of a state on the GPU are saved and restored, and what blocks",
    expected=(
        Expected(figure="state", unit="GB"),
        Expected(
            figure="saves that were committed", minimum=SAVES, maximum=SAVES, is_requirement=True
        ),
        Expected(figure="restored is what was saved", minimum=1, maximum=1, is_requirement=True),
        Expected(figure="first save blocks", unit="s", maximum=2),
        Expected(figure="later saves block", unit="s"),
        Expected(figure="later saves block, of async_save", maximum=1, is_requirement=True),
        Expected(figure="async_save blocks", unit="s"),
        Expected(figure="dcp.save takes", unit="s"),
        Expected(figure="async_save takes", unit="s"),
        Expected(figure="restore takes", unit="s"),
    ),
    limit_s=100,
    budget_s=40,
    measure=measure,
)
