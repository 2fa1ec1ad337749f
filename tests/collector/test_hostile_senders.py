"""The attacks of `benchmarks.hostile`, of the smallest dose; the benchmark has the large ones."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from benchmarks.hostile.attacks import ATTACKS, Target

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="attackers have an address of their own in 127.0.0.0/8"
)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_is_answered_and_others_are_served(live: Any, kit: Any, name: str) -> None:
    attack = ATTACKS[name]
    target = Target(dict(live.addresses))
    attacker = threading.Thread(target=attack.prepare(0.001), args=(target,), daemon=True)
    attacker.start()
    kit.eventually(lambda: target.answers)
    assert attack.gets_in is None or attack.gets_in(target)
    beat = kit.beat_of(kit.rank(0, run_id="other"), sent_at_s=1.0)
    assert live.post(beat, "metrics").status == 200
    target.ended.set()
    attacker.join(30.0)
    assert not attacker.is_alive()
    assert kit.eventually(lambda: "other" in live.report()["runs"])
