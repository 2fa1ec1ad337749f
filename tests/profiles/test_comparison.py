"""Operators of two ranks side by side, and their JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_straggler.model.operator_tables import (
    MAX_NAME,
    MAX_OPERATORS,
    OUTSIDE,
    OperatorTable,
    OperatorTime,
    costliest_operators,
    operator_table_json,
    read_operator_table,
)
from otel_straggler.profiles.comparison import compare_operators, difference_text


def table(rank: int, *operators: OperatorTime, n_steps: int = 1) -> OperatorTable:
    return OperatorTable(rank=rank, first_step=10, n_steps=n_steps, operators=operators)


def test_the_operator_that_takes_longer_is_named_with_both_times() -> None:
    """A step, whatever the number of steps of each rank."""
    slow = table(
        5, OperatorTime("aten::mm", 6, 0.36), OperatorTime("aten::add", 3, 0.03), n_steps=3
    )
    peer = table(
        2, OperatorTime("aten::mm", 4, 0.078), OperatorTime("aten::add", 2, 0.02), n_steps=2
    )
    assert difference_text(slow, peer) == (
        "aten::mm takes 3.1x as long on rank 5 as on rank 2 (120 ms against 39 ms a step)."
    )


def test_the_largest_difference_comes_first_and_the_waits_of_the_peer_last() -> None:
    slow = table(1, OperatorTime("a", 1, 0.2), OperatorTime("b", 1, 0.9), OperatorTime("c", 1, 0.1))
    peer = table(
        0, OperatorTime("a", 1, 0.1), OperatorTime("c", 1, 0.8), OperatorTime("d", 1, 0.01)
    )
    shown = compare_operators(slow, peer)
    assert [each.name for each in shown] == ["b", "a", "d", "c"]
    assert [each.ratio for each in shown] == [None, 2.0, 0.0, pytest.approx(0.125)]
    assert difference_text(slow, peer) == "b takes 900 ms a step on rank 1; rank 0 does not run it."


def test_an_operator_that_is_called_more_often_says_so() -> None:
    slow = table(1, OperatorTime("aten::copy_", 24, 0.12))
    peer = table(0, OperatorTime("aten::copy_", 8, 0.04))
    assert difference_text(slow, peer).endswith("; it is called 24 times a step against 8.")


def test_the_time_outside_of_operators_is_never_named() -> None:
    """On the peer it is mostly waiting, and no operator may be blamed for Python."""
    slow = table(1, OperatorTime(OUTSIDE, 1, 0.9), OperatorTime("aten::mm", 1, 0.1))
    peer = table(0, OperatorTime(OUTSIDE, 1, 0.2), OperatorTime("aten::mm", 1, 0.095))
    assert difference_text(slow, peer) == (
        "No operator takes longer on rank 1 than on rank 0: look outside of PyTorch's operators, "
        "at Python, data loading and files."
    )
    assert difference_text(table(1), table(0)).startswith("No operator takes longer")


def test_a_slow_kernel_is_named_and_not_who_waits_for_it() -> None:
    """Both differ by the same time: the kernel is the cause."""
    slow = table(
        3, OperatorTime("aten::mm", 1, 0.001, 0.120), OperatorTime("aten::item", 1, 0.130, 0.0)
    )
    peer = table(
        0, OperatorTime("aten::mm", 1, 0.001, 0.039), OperatorTime("aten::item", 1, 0.040, 0.0)
    )
    assert difference_text(slow, peer) == (
        "aten::mm takes 3.1x as long on rank 3 as on rank 0 "
        "(120 ms against 39 ms a step, on the GPU)."
    )


def test_a_slow_host_is_named_where_kernels_are_alike() -> None:
    slow = table(3, OperatorTime("aten::mm", 1, 0.001, 0.05), OperatorTime("aten::sort", 1, 0.5))
    peer = table(0, OperatorTime("aten::mm", 1, 0.001, 0.05), OperatorTime("aten::sort", 1, 0.1))
    assert difference_text(slow, peer) == (
        "aten::sort takes 5x as long on rank 3 as on rank 0 (500 ms against 100 ms a step)."
    )


# --- on the wire ---------------------------------------------------------------------------------


def test_a_table_survives_its_json_and_is_bounded() -> None:
    """The costliest 200 operators, with names of 200 characters: less than 64 KiB."""
    many = [OperatorTime("x" * 1_000 + str(n), n, n * 1e-3, n * 1e-4) for n in range(1, 500)]
    before = costliest_operators(many, rank=3, first_step=7, n_steps=2)
    assert [each.calls for each in before.operators[:2]] == [499, 498]
    assert (len(before.operators), before.left_out) == (MAX_OPERATORS, 299)
    sent = json.dumps(operator_table_json(before))
    assert len(sent) < 65_536
    after = read_operator_table(json.loads(sent), 3)
    assert [(each.calls, each.host_s, each.device_s) for each in after.operators] == [
        (each.calls, pytest.approx(each.host_s), pytest.approx(each.device_s))
        for each in before.operators
    ]
    assert all(len(each.name) == MAX_NAME for each in after.operators)


GOOD = {
    "version": 1,
    "first_step": 3,
    "n_steps": 2,
    "operators": [["aten::mm", 2, 0.5, 0.0]],
    "left_out": 0,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"n_steps": 0},
        {"first_step": -1},
        {"first_step": True},
        {"operators": [["x", 1, 0.1, 0.0]] * (MAX_OPERATORS + 1)},
        {"operators": [["x", 1, -0.1, 0.0]]},
        {"operators": [["x", 1, float("nan"), 0.0]]},
        {"operators": [["x", 1, 1e300, 0.0]]},
        {"operators": [["x", "1", 0.1, 0.0]]},
        {"operators": [[7, 1, 0.1, 0.0]]},
        {"operators": ["x"]},
        {"operators": None},
        {"left_out": None},
    ],
)
def test_what_is_no_table_is_refused(changes: dict[str, Any]) -> None:
    assert read_operator_table(GOOD, 3).operators[0] == OperatorTime("aten::mm", 2, 0.5)
    with pytest.raises(ValueError, match=r"operator|expected"):
        read_operator_table({**GOOD, **changes}, 3)


def test_a_name_from_the_network_is_cleaned() -> None:
    """It stands in sentences, terminals and chats."""
    read = read_operator_table({**GOOD, "operators": [["mm\x1b[31m\u202e", 1, 0.1, 0.0]]}, 0)
    assert "\x1b" not in read.operators[0].name
    assert "\u202e" not in read.operators[0].name
