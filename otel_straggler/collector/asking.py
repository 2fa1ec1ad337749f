"""Asking ranks for something, behind a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GuardedAsking:
    """What ``/v1/commands`` of the metrics address does.

    Attributes:
        ask: takes the body of a POST; raises InputError for a wrong one.
        outcomes: takes the query of a GET.
        refusal: status and sentence for who does not show the token.
    """

    ask: Callable[[bytes], dict[str, Any]]
    outcomes: Callable[[str], dict[str, Any]]
    refusal: Callable[[Mapping[str, str]], tuple[int, str] | None]
