"""Rank and run of a process started like this one, and their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from otel_straggler.client.endpoints import parse_pairs
from otel_straggler.client.identity import DetectedIdentity, detect_rank_numbers, explain_run_id
from otel_straggler.doctor.findings import Finding, info, ok, problem, warning
from otel_straggler.semconv import DEFAULT_ROLE

RUN_ID_REMEDY = "export OTEL_STRAGGLER_RUN_ID=my-run-1   # the same text on all ranks of the run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Detected values and their sources; empty and None if there are none."""

    run_id: str
    run_id_where: str
    numbers: Mapping[str, DetectedIdentity]
    is_one_node: bool

    @property
    def rank(self) -> int | None:
        return self.numbers["rank"].value

    @property
    def world_size(self) -> int | None:
        return self.numbers["world_size"].value


def find_identity(env: Mapping[str, str]) -> Identity:
    """Leaves nothing behind: no token in a store."""
    named = env.get("OTEL_STRAGGLER_RUN_ID", "").strip()
    run_id, where = (named, "OTEL_STRAGGLER_RUN_ID") if named else explain_run_id(env)
    sizes = (env.get("WORLD_SIZE", "1").strip(), env.get("LOCAL_WORLD_SIZE", "").strip())
    return Identity(
        run_id=run_id,
        run_id_where=where,
        numbers=detect_rank_numbers(env),
        is_one_node=sizes[1] in {"", sizes[0]} and env.get("SLURM_NNODES", "1") in {"", "1"},
    )


def check_identity(identity: Identity, env: Mapping[str, str]) -> Iterator[Finding]:
    yield check_run_id(identity)
    yield check_rank(identity)
    yield from check_numbers(env)
    yield check_role(env)
    yield check_job(env)


def check_run_id(identity: Identity) -> Finding:
    """One name on all ranks, another for every run."""
    result, where = identity.run_id, identity.run_id_where
    if result and "hash" in where and not identity.is_one_node:
        sentence = (
            f"The run would be called {result!r}, from {where} alone: a later run at the same "
            "address gets the same name."
        )
        return warning("identity.run_id", sentence, RUN_ID_REMEDY, result)
    if result:
        return ok("identity.run_id", f"The run is called {result!r}, from {where}.", result)
    if where:
        return info("identity.run_id", f"The first rank to configure names the run by {where}.")
    if identity.rank is not None:
        sentence = (
            f"This is rank {identity.rank}, but nothing names the run: every rank would report "
            "a run of its own, and none would be compared."
        )
        return problem("identity.run_id", sentence, RUN_ID_REMEDY)
    sentence = (
        "Nothing here names a run: this is no job of torchrun, Slurm, Ray or Kubeflow. "
        "A training process started like this gets a random name."
    )
    return info("identity.run_id", sentence, None, RUN_ID_REMEDY)


def check_rank(identity: Identity) -> Finding:
    text = {name: result for name, result in identity.numbers.items() if result.value is not None}
    value = {name: result.value for name, result in identity.numbers.items()}
    listed = ", ".join(f"{name} {result.value} ({result.where})" for name, result in text.items())
    if identity.rank is None:
        sentence = "No launcher sets a rank: a training process started like this is rank 0 of 1."
        return info("identity.rank", sentence, value)
    if identity.world_size is None:
        sentence = (
            f"{listed}; the size of the world is not known, so missing ranks cannot be detected."
        )
        remedy = "export WORLD_SIZE=8   # or configure(world_size=8): how many ranks there are"
        return warning("identity.rank", sentence, remedy, value)
    return ok("identity.rank", f"{listed}.", value)


def check_numbers(env: Mapping[str, str]) -> Iterator[Finding]:
    """Variables that should be numbers and are not; they are ignored."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        text = env.get(name, "").strip()
        if text and not (text.isascii() and text.isdigit()):
            sentence = f"{name} is {text[:40]!r}, which is no whole number: it is not used."
            yield warning(f"identity.{name.lower()}_text", sentence, f"unset {name}", text[:40])


def check_role(env: Mapping[str, str]) -> Finding:
    role = env.get("OTEL_STRAGGLER_ROLE", "").strip()
    if role:
        return ok("identity.role", f"The role is {role!r}, from OTEL_STRAGGLER_ROLE.", role)
    sentence = (
        f"The role is {DEFAULT_ROLE!r}: no variable sets one. configure(role=...) or "
        "set_topology(role=...) in the program would; they cannot be seen from here."
    )
    return info("identity.role", sentence, DEFAULT_ROLE)


def check_job(env: Mapping[str, str]) -> Finding:
    resource = parse_pairs(env.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    for where, name in (
        ("OTEL_STRAGGLER_SERVICE_NAME", env.get("OTEL_STRAGGLER_SERVICE_NAME", "").strip()),
        ("OTEL_SERVICE_NAME", env.get("OTEL_SERVICE_NAME", "").strip()),
        ("OTEL_RESOURCE_ATTRIBUTES", resource.get("service.name", "")),
    ):
        if name:
            return ok("identity.job", f"The job is called {name!r}, from {where}.", name)
    sentence = "The job is called like the training script: no variable sets another name."
    return info("identity.job", sentence)
