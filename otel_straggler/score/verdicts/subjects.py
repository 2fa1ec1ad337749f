"""Who a verdict is about, and what it is called over restarts."""

from __future__ import annotations

from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import Cause


def rank_subject(source: Source) -> str:
    """The device rather than the rank number, which an elastic restart may give to another.

    >>> rank_subject(Source(run_id="r", rank=9, node="node-1", local_rank=1))
    'rank/node-1/1'
    >>> rank_subject(Source(run_id="r", rank=9, group="critic"))
    'critic:rank/9'
    """
    device = source.device or (str(source.local_rank) if source.local_rank >= 0 else "")
    name = f"{source.node}/{device}" if source.node and device else f"{source.rank}"
    return _in_group(source.group, f"rank/{name}")


def host_subject(group: str, node: str) -> str:
    return _in_group(group, f"host/{node}")


def role_subject(group: str, role: str, cause: Cause) -> str:
    return _in_group(group, f"role/{role}/{cause}")


def run_subject(group: str, cause: Cause) -> str:
    return _in_group(group, f"run/{cause}")


def _in_group(group: str, name: str) -> str:
    return f"{group}:{name}" if group else name


def cause_of_section(section: Section | None) -> Cause:
    """What a rank that loses its time there suffers from, by the kind of the section."""
    if section is None or section.kind == "compute":
        return "slow_gpu"
    return "slow_host"
