"""How often the page's answers are made, and in which form they are sent."""

from __future__ import annotations

import gzip
import json
import threading
from typing import Any

import pytest

from otel_straggler.collector.api import cache
from otel_straggler.collector.api.cache import AT_ONCE_S, MAX_OF_A_CORE, Answer, AnswerCache


class Made:
    """Counts how often an answer is made; time stands still unless it is told to go on."""

    def __init__(self, cost_s: float = 0.0) -> None:
        self.at_s = 100.0
        self.cpu_s = 0.0
        self.cost_s = cost_s
        self.looks: list[float] = []
        self.cache = AnswerCache(lambda: self.at_s, lambda: self.cpu_s, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds

    def make(self, look_s: float) -> dict[str, Any]:
        self.looks.append(look_s)
        self.cpu_s += self.cost_s
        return {"n": len(self.looks)}

    def get(self, state: object, key: str = "run") -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.cache.get((key,), str(state), self.make).body)
        return result


def test_what_has_not_changed_is_made_once() -> None:
    made = Made()
    for _ in range(5):
        assert made.get("a") == {"n": 1}
        made.at_s += 100.0
    assert made.get("b") == {"n": 2}


def test_what_changes_all_the_time_is_made_once_a_second() -> None:
    made = Made()
    for state in range(10):
        made.get(state)
        made.at_s += 0.3
    assert len(made.looks) == 3


def test_a_tenth_of_a_core_goes_into_answers_at_most() -> None:
    """An answer that takes half a second counts for five, and whoever asks is told so."""
    made = Made(cost_s=0.5)
    for state in range(100):
        made.get(state)
        made.at_s += 1.0
    assert len(made.looks) <= 20
    assert made.looks[0] == 1.0
    assert made.looks[1] == 5.0
    assert made.cpu_s <= 100.0 / 10 + 0.5


def test_many_who_look_at_different_things_share_that_tenth() -> None:
    made = Made(cost_s=0.1)
    for state in range(200):
        for key in "abcdefgh":
            made.get(state, key)
        made.at_s += 0.5
    assert made.cpu_s <= 100.0 / 10 * 1.5


def test_who_asks_for_something_else_every_time_waits() -> None:
    """Nothing that is kept helps then: a few seconds at once, then a quarter of a core; the time
    of those that fail counts too."""
    made = Made(cost_s=0.1)
    began_s = made.at_s
    for key in range(400):
        made.get("a", str(key))
    assert made.cpu_s <= AT_ONCE_S + MAX_OF_A_CORE * (made.at_s - began_s) + 0.2

    def fail(_: float) -> dict[str, Any]:
        made.cpu_s += 0.1
        raise KeyError("x")

    before_s = made.at_s
    for key in range(10):
        with pytest.raises(KeyError):
            made.cache.get((key,), "a", fail)
    assert made.at_s - before_s >= 10 * 0.1 / MAX_OF_A_CORE - 0.5


def test_who_asks_for_what_is_kept_does_not_wait_for_another_answer() -> None:
    cache = AnswerCache()
    has_begun, may_end = threading.Event(), threading.Event()

    def slow(_: float) -> dict[str, Any]:
        has_begun.set()
        assert may_end.wait(20.0)
        return {}

    cache.get(("quick",), "a", lambda _: {"n": 1})
    other = threading.Thread(target=cache.get, args=(("slow",), "a", slow))
    other.start()
    assert has_begun.wait(20.0)
    assert cache.get(("quick",), "a", slow).body == b'{"n":1}'
    may_end.set()
    other.join()


def test_what_is_kept_stays_within_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large answers are; the newest stays in any case."""
    maximum = 3_000
    monkeypatch.setattr(cache, "MAX_BYTES", maximum)
    made = Made()
    third = "x" * (maximum // 3)
    for key in range(8):
        made.cache.get((key,), "a", lambda _: {"values": third})
    kept = sum(each.answer.size for each in made.cache._answers.values())
    assert 0 < kept <= maximum
    made.cache.get(("all",), "a", lambda _: {"values": third * 4})
    assert list(made.cache._answers) == [("all",)]


def test_an_error_is_passed_on_and_not_kept() -> None:
    made = Made()

    def fail(_: float) -> dict[str, Any]:
        raise KeyError("x")

    with pytest.raises(KeyError):
        made.cache.get(("run",), "a", fail)
    assert made.get("a") == {"n": 1}


def test_answers_are_zipped_where_it_is_worth_it() -> None:
    small, large = Answer({"a": 1}), Answer({"a": list(range(5000))})
    assert small.zipped() is None
    zipped = large.zipped()
    assert zipped is not None
    assert gzip.decompress(zipped) == large.body
    assert large.zipped() is zipped


def test_an_etag_is_of_the_content() -> None:
    assert Answer({"a": 1}).etag == Answer({"a": 1}).etag
    assert Answer({"a": 1}).etag != Answer({"a": 2}).etag


def test_awkward_text_is_json_all_the_same() -> None:
    """Lone surrogates cannot be sent; they become question marks."""
    result = json.loads(Answer({"name": "前\ud800</script>"}).body)
    assert result == {"name": "前?</script>"}
