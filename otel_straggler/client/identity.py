"""Which rank of which run this process is, from launcher, scheduler and torch.distributed.

torch is only looked at if the user's program has already imported it.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from otel_straggler.client.run_names import new_run_name, words_of
from otel_straggler.strict_json import whole_number

_LOG = logging.getLogger("otel_straggler")
_STORE_KEY = "otel_straggler/run_id"
_GROUP: Final = "torch.distributed"
_RANKS: Final = ("RANK", "SLURM_PROCID")
_SIZES: Final = ("WORLD_SIZE", "SLURM_NTASKS")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
"""As ``uuid.uuid4()`` makes it."""


class DetectedIdentity(NamedTuple):
    """A number, None if it is not known, and its source."""

    value: int | None
    where: str


_UNKNOWN: Final = DetectedIdentity(None, "")


def detect_rank_numbers(env: Mapping[str, str]) -> dict[str, DetectedIdentity]:
    """Rank, world size, local rank and attempt, with their sources, the surest first: the process
    group, the launcher's variables, Slurm's. Variables may be those of a pod or a task that starts
    several processes: where the process group says another rank, nobody knows the local rank.

    >>> detect_rank_numbers({"SLURM_PROCID": "3"})["rank"]
    DetectedIdentity(value=3, where='SLURM_PROCID')
    """
    process_group = initialised_process_group()
    numbers = {
        "rank": _first(*(_number(env, name) for name in _RANKS)),
        "world_size": _first(*(_number(env, name) for name in _SIZES)),
        "local_rank": _first(_number(env, "LOCAL_RANK"), _number(env, "SLURM_LOCALID")),
        "attempt": _first(
            _number(env, "OTEL_STRAGGLER_ATTEMPT"), _number(env, "TORCHELASTIC_RESTART_COUNT")
        ),
    }
    if not process_group:
        return numbers
    sure = {
        "rank": DetectedIdentity(process_group.get_rank(), _GROUP),
        "world_size": DetectedIdentity(process_group.get_world_size(), _GROUP),
    }
    if numbers["rank"].value not in {None, sure["rank"].value}:
        numbers["local_rank"] = _UNKNOWN
    return numbers | sure


def is_rank_of_process(env: Mapping[str, str]) -> bool:
    """Whether the variables are surely of this process: torchelastic sets them for each one. Those
    of an operator or of Slurm may be of a pod or a task that starts several."""
    return "TORCHELASTIC_RUN_ID" in env and _number(env, "RANK").value is not None


def restarts_left(env: Mapping[str, str]) -> int | None:
    """How often torchelastic may still restart this run; None without it.

    >>> restarts_left({"TORCHELASTIC_MAX_RESTARTS": "3", "TORCHELASTIC_RESTART_COUNT": "1"})
    2
    """
    maximum, so_far = (
        _number(env, f"TORCHELASTIC_{name}").value for name in ("MAX_RESTARTS", "RESTART_COUNT")
    )
    return None if maximum is None or so_far is None else max(maximum - so_far, 0)


def other_rank_numbers(env: Mapping[str, str]) -> str:
    """A sentence about variables that contradict the process group; empty if none does."""
    process_group = initialised_process_group()
    if process_group is None:
        return ""
    rank, size = process_group.get_rank(), process_group.get_world_size()
    named = (
        (_first(*(_number(env, name) for name in names)), value)
        for names, value in ((_RANKS, rank), (_SIZES, size))
    )
    wrong = [f"{it.where} is {it.value}" for it, value in named if it.value not in {None, value}]
    if not wrong:
        return ""
    return (
        f"{' and '.join(wrong)}, but this process is rank {rank} of {size} of its process group, "
        "which is used: the variables seem to be those of a pod or a task that starts several "
        "processes"
    )


def find_run_id(env: Mapping[str, str]) -> str:
    """Name the run alike on every rank: scheduler, launcher, shared store, or a hash."""
    return (
        named_run_id(env)[0]
        or _store_run_id(is_setting=True)
        or _hashed_run_id(env)
        or _lone_run_id()
    )


def explain_run_id(env: Mapping[str, str]) -> tuple[str, str]:
    """The result of :func:`find_run_id`, and its source, without leaving a token in the store;
    empty where only a token, or a random name, would be given."""
    run_id, where = named_run_id(env)
    if run_id:
        return run_id, where
    if initialised_process_group() is not None:
        return _store_run_id(is_setting=False), "a token in the store of torch.distributed"
    run_id = _hashed_run_id(env)
    return run_id, "a hash of MASTER_ADDR and MASTER_PORT" if run_id else ""


def initialised_process_group() -> Any:
    """``torch.distributed`` if it is imported and initialised, else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return None
    return distributed if distributed.is_initialized() else None


def named_run_id(env: Mapping[str, str]) -> tuple[str, str]:
    """The name that scheduler or launcher gave the run, and its variable; both empty if none did. A
    requeued Slurm job keeps its id; ``torchrun --standalone`` gives a UUID, which becomes words."""
    if slurm := env.get("SLURM_JOB_ID", ""):
        restarts = env.get("SLURM_RESTART_COUNT", "0")
        is_first = restarts in {"", "0"}
        return f"slurm-{slurm}" if is_first else f"slurm-{slurm}-{restarts}", "SLURM_JOB_ID"
    for name, prefix in (("RAY_JOB_ID", "ray-"), ("KUBEFLOW_TRAINING_JOB_ID", "k8s-")):
        if env.get(name):
            return prefix + env[name], name
    run_id = env.get("TORCHELASTIC_RUN_ID", "")
    if run_id in {"", "none"}:
        return "", ""
    return _in_words(run_id), "TORCHELASTIC_RUN_ID"


def _in_words(run_id: str) -> str:
    """A name that people can say instead of a UUID, alike on all ranks and in all attempts; its
    digits are the first six of the UUID. Any other name stays.

    >>> _in_words("3f9a1c52-4b1e-4f6e-9a53-0d7c1f2b8e44"), _in_words("job-7")
    ('run-deft-finch-3f9a1c', 'job-7')
    """
    if _UUID.fullmatch(run_id) is None:
        return run_id
    digits = bytes.fromhex(run_id[:6])
    return "run-" + words_of(blake2b(run_id.encode(), digest_size=2).digest() + digits)


def _store_run_id(*, is_setting: bool) -> str:
    """A token that the first rank to come leaves in the default store. Nobody waits for it."""
    process_group = initialised_process_group()
    if process_group is None:
        return ""
    try:
        store = process_group.distributed_c10d._get_default_store()  # noqa: SLF001
        if is_setting:
            return bytes(store.compare_set(_STORE_KEY, "", new_run_name())).decode()
        return bytes(store.get(_STORE_KEY)).decode() if store.check([_STORE_KEY]) else ""
    except Exception as error:  # noqa: BLE001  a store without these functions
        _LOG.info("no run id from the store of torch.distributed: %s", error)
        return ""


def _hashed_run_id(env: Mapping[str, str]) -> str:
    """The rendezvous address and, where all ranks have one launcher, when that was started."""
    address = env.get("MASTER_ADDR", "")
    if not address:
        return ""
    text = f"{address}:{env.get('MASTER_PORT', '')}"
    if _is_one_node(env):
        text += f"|{_start_of_parent()}"
    else:
        _LOG.warning(
            "the run id is made from MASTER_ADDR and MASTER_PORT only, so a later run at the same "
            "address looks like this one. Set OTEL_STRAGGLER_RUN_ID to the same text on all ranks."
        )
    return "run-" + words_of(blake2b(text.encode(), digest_size=6).digest())


@lru_cache(maxsize=1)
def _lone_run_id() -> str:
    return new_run_name()


def _is_one_node(env: Mapping[str, str]) -> bool:
    world, local = _number(env, "WORLD_SIZE").value, _number(env, "LOCAL_WORLD_SIZE").value
    return world is None or local is None or world == local


def _start_of_parent() -> str:
    """Boot id and start of the parent, in ticks since boot (proc(5), field 22 of stat)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        stat = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8", errors="replace")
        return f"{boot}|{stat.rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return ""


def _number(env: Mapping[str, str], name: str) -> DetectedIdentity:
    text = env.get(name, "").strip()
    number = whole_number(text)
    return _UNKNOWN if number is None else DetectedIdentity(number, name)


def _first(*candidates: DetectedIdentity) -> DetectedIdentity:
    return next((one for one in candidates if one.value is not None), _UNKNOWN)
