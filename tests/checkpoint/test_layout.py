"""Which rank keeps copies of whose files."""

from __future__ import annotations

from collections import Counter

import pytest

from otel_straggler.checkpoint import LocalTier
from otel_straggler.checkpoint.layout import Layout
from otel_straggler.errors import ConfigError


def layout(domains: str, per_node: int = 1, replicas: int = 1) -> Layout:
    """A letter is the domain of a node."""
    places = [
        (f"host {node}", "/local", domain)
        for node, domain in enumerate(domains)
        for _ in range(per_node)
    ]
    return Layout.of_places(places, replicas)


@pytest.mark.parametrize("domains", ["ab", "aabb", "abab", "aaabbbccc", "abc", "aabbccdd"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_copies_are_in_other_domains_and_as_many_on_each_node(domains: str, replicas: int) -> None:
    its = layout(domains, per_node=2, replicas=replicas)
    keepers = its.keepers(range(len(its.nodes)))
    kept = Counter(keeper for chosen in keepers.values() for keeper in chosen)
    assert max(kept.values()) - min(kept.values()) <= (0 if replicas == 1 else 1)
    for rank, chosen in keepers.items():
        assert len({its.nodes[keeper] for keeper in chosen}) == len(chosen)
        assert all(domains[its.nodes[each]] != domains[its.nodes[rank]] for each in chosen)


def test_ranks_of_a_node_share_the_work_of_keeping() -> None:
    assert layout("ab", per_node=2).keepers(range(4)) == {0: [2], 1: [3], 2: [0], 3: [1]}


def test_a_node_is_a_host_and_a_folder_wherever_its_ranks_are() -> None:
    places = [("b", "/x", ""), ("a", "/x", ""), ("b", "/x", ""), ("a", "/y", "")]
    its = Layout.of_places(places, 1)
    assert its.nodes == (0, 1, 0, 2)
    assert its.leader(2, range(4)) == 0
    assert its.keepers(range(4)) == {0: [1], 2: [1], 1: [3], 3: [0]}


def test_only_who_lives_keeps_copies() -> None:
    assert layout("abc").keepers([0, 2]) == {0: [2], 2: [0]}
    assert layout("abc").keepers([1]) == {1: []}


def test_without_another_domain_there_are_no_copies() -> None:
    assert layout("aaa").possible_replicas(range(3)) == 0
    assert layout("aab", replicas=2).possible_replicas(range(3)) == 1
    assert Layout.shared(3).keepers(range(3)) == {0: [], 1: [], 2: []}


@pytest.mark.parametrize("option", [{"every_steps": 0}, {"replicas": -1}, {"keep": 0}])
def test_a_wrong_number_is_refused(option: dict[str, int]) -> None:
    (name,) = option
    with pytest.raises(ConfigError, match=rf"LocalTier\({name}=...\): got "):
        LocalTier("/local", **{"every_steps": 1, **option})
