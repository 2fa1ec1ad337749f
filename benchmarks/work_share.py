"""How often tokens are said to explain time where they do not, and how small an effect is found.

    python -m benchmarks.work_share [--runs N] [--quick] [--traces FOLDER]

A run is an hour of 2 s steps: 360 blocks of 5 steps, of one peer group. ``false`` gives, for each
kind of noise, of tokens and number of ranks, in how many of all blocks and in how many of the runs
a share of the time is reported to grow with tokens although none does. ``power`` gives, for true
shares, in how many runs it is reported after 2, 10 and 50 blocks, and what is reported then.
``traces`` takes the noise from the compute times of the published traces of production jobs, whose
few steps are put together at random, ten at a time, in place of being drawn.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from otel_straggler.detect.scores.medians import Groups
from otel_straggler.detect.verdicts.equal_work import WorkNormaliser
from otel_straggler.model.observation import Floats

BLOCKS, BLOCK_STEPS = 360, 5
STEPS = BLOCKS * BLOCK_STEPS
RANKS = (4, 8, 16)
SHARES = (0.02, 0.05, 0.1, 0.3, 1.0)
SEEN_AFTER = (1, 2, 4, 10, 50)
SIGMA = 0.024
Shape = tuple[int, int, int]
Draw = Callable[[np.random.Generator, Shape], Floats]


def _normal(random: np.random.Generator, shape: Shape) -> Floats:
    return SIGMA * random.standard_normal(shape)


def _heavy(random: np.random.Generator, shape: Shape) -> Floats:
    return SIGMA * random.standard_t(2.0, shape)


def _pauses(random: np.random.Generator, shape: Shape) -> Floats:
    """One step of twenty takes longer, by a Pareto tail."""
    pauses = (random.random(shape) < 0.05) * np.log1p(random.pareto(2.0, shape))
    return _normal(random, shape) + pauses


def _slow_waves(random: np.random.Generator, shape: Shape) -> Floats:
    """Each rank by itself, correlated over some 20 steps."""
    return SIGMA * _autocorrelated(random, shape, 0.95)


def _shared_waves(random: np.random.Generator, shape: Shape) -> Floats:
    """All ranks together, correlated over some 10 steps, alongside noise of their own."""
    shared = _autocorrelated(random, (shape[0], shape[1], 1), 0.9)
    return SIGMA * shared + 0.3 * _normal(random, shape)


def _warming(random: np.random.Generator, shape: Shape) -> Floats:
    """Noise, and 10 % slower at the end of the hour than at its beginning."""
    return _normal(random, shape) + 0.1 * np.linspace(0.0, 1.0, shape[0])[:, None, None]


def _autocorrelated(random: np.random.Generator, shape: Shape, rho: float) -> Floats:
    drawn = random.standard_normal(shape)
    for t in range(1, shape[0]):
        drawn[t] = rho * drawn[t - 1] + np.sqrt(1.0 - rho * rho) * drawn[t]
    return drawn


def _even(random: np.random.Generator, shape: Shape) -> Floats:
    return random.uniform(0.5, 1.5, shape)


def _skewed(random: np.random.Generator, shape: Shape) -> Floats:
    return np.exp(0.3 * random.standard_normal(shape))


def _padded(random: np.random.Generator, shape: Shape) -> Floats:
    """Full, but for one step of twenty that is not."""
    return np.where(random.random(shape) < 0.05, random.uniform(0.1, 0.9, shape), 1.0)


def _same_for_all(random: np.random.Generator, shape: Shape) -> Floats:
    """Batches by length: all ranks of a step have the same."""
    return np.broadcast_to(_skewed(random, (shape[0], shape[1], 1)), shape).copy()


def _sorted(random: np.random.Generator, shape: Shape) -> Floats:
    """Sorted by length: neighbouring steps have nearly the same."""
    return np.exp(0.3 * _autocorrelated(random, shape, 0.9))


def _growing(random: np.random.Generator, shape: Shape) -> Floats:
    """A curriculum: three times the tokens at the end of the hour."""
    return _skewed(random, shape) * np.linspace(1.0, 3.0, shape[0])[:, None, None]


NOISE: dict[str, Draw] = {
    "normal": _normal,
    "t with 2 degrees of freedom": _heavy,
    "pauses": _pauses,
    "slow waves": _slow_waves,
    "shared waves": _shared_waves,
    "warming up": _warming,
}
TOKENS: dict[str, Draw] = {
    "even": _even,
    "skewed": _skewed,
    "padded": _padded,
    "same for all": _same_for_all,
    "sorted": _sorted,
    "growing": _growing,
}


def main() -> None:
    """Print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=60, help="of each case")
    parser.add_argument("--quick", action="store_true", help="three runs of each")
    parser.add_argument("--traces", type=Path, help="folder of trace-*.parquet")
    args = parser.parse_args()
    print(json.dumps(measure(3 if args.quick else args.runs, args.traces), indent=2))


def measure(runs: int, traces: Path | None = None) -> dict[str, Any]:
    """All cases; ``runs`` of each."""
    of_traces = {} if traces is None else _of_traces(traces)
    false = [
        _false(noise, tokens, ranks, runs, {**NOISE, **of_traces}[noise])
        for noise in (*NOISE, *of_traces)
        for tokens in TOKENS
        for ranks in RANKS
    ]
    blocks = sum(case["blocks"] for case in false)
    return {
        "runs": runs,
        "worst_false_per_10_000_blocks": max(case["per_10_000_blocks"] for case in false),
        "false_per_10_000_blocks": 1e4 * sum(case["told"] for case in false) / blocks,
        "false_runs": sum(case["runs_told"] for case in false) / (runs * len(false)),
        "blocks": blocks,
        "false": false,
        "power": [
            _power(noise, tokens, share, ranks, runs)
            for noise in ("normal", "pauses")
            for tokens in ("skewed", "padded")
            for share in SHARES
            for ranks in RANKS
        ],
    }


def _false(noise: str, tokens: str, ranks: int, runs: int, draw: Draw) -> dict[str, Any]:
    random = np.random.default_rng([len(noise), len(tokens), ranks])
    shape = (STEPS, runs, ranks)
    reported = _reported(np.exp(draw(random, shape)), TOKENS[tokens](random, shape), BLOCKS) > 0
    return {
        "noise": noise,
        "tokens": tokens,
        "ranks": ranks,
        "blocks": reported.size,
        "told": int(reported.sum()),
        "per_10_000_blocks": round(1e4 * float(reported.mean()), 2),
        "runs_told": int(reported.any(axis=0).sum()),
    }


def _power(noise: str, tokens: str, share: float, ranks: int, runs: int) -> dict[str, Any]:
    random = np.random.default_rng([7, len(tokens), ranks])
    blocks = max(SEEN_AFTER)
    shape = (blocks * BLOCK_STEPS, runs, ranks)
    drawn = TOKENS[tokens](random, shape)
    seconds = (1.0 + share * (drawn / drawn.mean() - 1.0)) * np.exp(NOISE[noise](random, shape))
    reported = _reported(seconds, drawn, blocks)
    return {
        "noise": noise,
        "tokens": tokens,
        "share": share,
        "ranks": ranks,
        "runs_told_after_blocks": {
            str(n): round(float((reported[n - 1] > 0).mean()), 3) for n in SEEN_AFTER
        },
        "told": round(float(reported[-1].mean()), 4),
        "error": round(float(np.sqrt(((reported[-1] - share) ** 2).mean())), 4),
    }


def _reported(seconds: Floats, tokens: Floats, blocks: int) -> Floats:
    """(blocks, runs) share after each block; (T, runs, ranks) in. Every run is a group."""
    _, runs, ranks = seconds.shape
    groups = [f"run {run}" for run in range(runs)]
    peers = Groups.of(np.repeat(groups, ranks).tolist())
    work = WorkNormaliser()
    reported = np.zeros((blocks, runs))
    for block in range(blocks):
        part = slice(block * BLOCK_STEPS, (block + 1) * BLOCK_STEPS)
        flat = seconds[part].reshape(BLOCK_STEPS, -1, 1), tokens[part].reshape(BLOCK_STEPS, -1)
        work.normalise(*flat, peers, groups, ["forward"])
        reported[block] = work.share(groups, ["forward"])[:, 0]
    return reported


def _of_traces(folder: Path) -> dict[str, Draw]:
    """The log of compute times over each rank's median, pieces of ten steps at random."""
    import pyarrow.parquet as parquet

    result: dict[str, Draw] = {}
    for path in sorted(folder.glob("trace-*.parquet")):
        table = parquet.read_table(path, columns=["optype", "rank", "step", "duration"])
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        is_compute = np.isin(columns["optype"], ("forward-compute", "backward-compute"))
        steps, t = np.unique(columns["step"][is_compute], return_inverse=True)
        ranks, r = np.unique(columns["rank"][is_compute], return_inverse=True)
        seconds = np.zeros((len(steps), len(ranks)))
        np.add.at(seconds, (t, r), columns["duration"][is_compute])
        log = np.log(seconds) - np.median(np.log(seconds), axis=0)
        result[path.stem] = _pieces(log)
    return result


def _pieces(log: Floats) -> Draw:
    def draw(random: np.random.Generator, shape: Shape) -> Floats:
        length = min(10, len(log))
        pieces = []
        for _ in range(-(-shape[0] // length)):
            start = int(random.integers(len(log) - length + 1))
            ranks = random.integers(log.shape[1], size=shape[1:])
            pieces.append(log[start : start + length][:, ranks])
        return np.concatenate(pieces)[: shape[0]]

    return draw


if __name__ == "__main__":
    main()
