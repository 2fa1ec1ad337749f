"""A restart by torchrun is a new attempt of the same run."""

import subprocess
import sys
from pathlib import Path

import pytest

LONGEST_S = 150
RANKS = Path(__file__).with_name("restarted_ranks.py")


@pytest.mark.demo
def test_after_a_restart_by_torchrun_ranks_are_scored_under_the_next_attempt(
    start_collector, watch, tmp_path: Path
):
    """The same steps, run again, are neither duplicates nor mixed with those before."""
    watched = watch(start_collector("--window-steps=20"), "restarted")
    flags = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node=2", "--max-restarts=1")
    torchrun = [sys.executable, "-m", "torch.distributed.run", *flags]
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(
            [*torchrun, RANKS, watched.collector.endpoint], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            before = watched.wait_for(lambda w: w["attempt"] == 0 and w["first_step"] == 0)
            again = watched.wait_for(lambda w: w["attempt"] == 1 and w["first_step"] == 0)
            last = watched.wait_for(lambda w: w["attempt"] == 1 and w["last_step"] == 39)
            assert job.wait(LONGEST_S) == 0, (tmp_path / "log").read_text()
        finally:
            job.terminate()
            job.wait(LONGEST_S)
    watched.look()
    for window in (before, again, last):
        assert sorted(window["ranks"]) == ["0", "1"]
        assert window["n_steps"] == 20
        assert (window["duplicates"], window["superseded"]) == (0, 0)
    assert watched.run["clashes"] == []
    assert max(before["section_medians_s"]["forward"].values()) < 0.03
    assert min(again["section_medians_s"]["forward"].values()) >= 0.03
