"""Memory of the excesses of all ranks, or all hosts, and who is beyond.

A block of 5 steps counts with its median. Windows of 20 steps are medians of 4 blocks; those of 100
and 400 are means of clipped blocks, whose cost does not depend on their length. CUSUM runs on
single steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.medians import low_median_of_rows, median_of, median_of_rows
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.noise import (
    MIN_SIGMA,
    NoiseScales,
    beyond_chance,
    mixed,
    quantile,
    short_of,
    slide,
)
from otel_straggler.detect.verdicts.onsets import onset_of
from otel_straggler.detect.verdicts.significance import (
    STEPS_PER_DAY,
    Z_POWER,
    Findings,
    advance_cusum,
    cusum_moves,
    cusum_slack,
    cusum_threshold,
    min_z,
    spread_of,
)
from otel_straggler.detect.verdicts.turns import MIN_RUN, OBVIOUS, BlockHistory, takes_turns
from otel_straggler.model.observation import Bools, Floats, Ints

SIGMA_OF_BLOCK_DEVIATION = 2.04
"""Standard deviation of a step / median distance of a step from the median of its block of 5."""
MIN_REFERENCE = 4
"""Blocks that an own reference needs."""
FIRST_REFERENCE = 8
MAX_REFERENCE = 400
"""Blocks after which older ones fade."""
KEPT_REFERENCE = 40
"""Blocks that a reference counts for after a restart."""
MIN_HISTORY_STEPS, MIN_STEPS_OF_OBVIOUS = 50, 25
"""Before, there are suspicions only; ranks that take twice as long are named earlier."""
NEWEST_BLOCKS, LONG_BLOCKS = 4, 20
VERIFY_STEPS = 12
"""Fewer since an onset say nothing: pauses come in clusters, also of the ranks that one meets."""
MAX_VERIFIED_BLOCKS = 20
MAX_BLOCK = 0.2
"""In means of windows a block of steps counts for no more, or for 4 standard errors."""
LASTING_PART = 0.75
LOW_QUANTILE, LASTING = 0.25, 0.4
"""Of the steps since an onset also the lower quartile must lie so high, as a part of the median."""


class Track:
    """Memory of R subjects and C quantities. State: 4 bytes x (80 blocks + 20 steps) per pair.

    Args:
        weight: (R,) usual standard error / that of the subject, at most 1: a host with few ranks
            scatters more than the others. None: all scatter alike.
    """

    def __init__(
        self, shape: tuple[int, int], settings: VerdictSettings, weight: Floats | None = None
    ) -> None:
        self._settings = settings
        self._weight = np.ones(shape[0]) if weight is None else weight
        self.shape = shape
        self.steps = 0
        self.steps_before = 0  # a restart of the collector
        self.blocks = 0
        longest = max(settings.windows_steps) // settings.block_steps
        # Zeros cost no memory until they are written; nothing is read before.
        self._block_ring = np.zeros((longest, *shape), np.float32)
        self._block_begins = np.zeros(longest, np.int64)
        self._step_ring = np.zeros((4 * settings.block_steps, *shape), np.float32)
        self._max_block = np.full(shape[1], np.inf)
        self._newest_blocks = np.full((NEWEST_BLOCKS, *shape), np.nan)
        self._sums = {w: np.zeros(shape) for w in settings.windows_steps[1:]}
        self._counts = {w: np.zeros(shape, np.int32) for w in settings.windows_steps[1:]}
        self.sigma = np.full(shape[1], np.nan)
        self.noise = NoiseScales(shape)
        self._last_block = np.full(shape, np.nan)
        self.g: Floats = np.zeros(shape)
        self._h = np.full(shape[1], np.inf)
        self._zero_at = np.full(shape, -1, np.int64)
        self.reference = np.full(shape, np.nan)
        self._reference_blocks = np.zeros(shape, np.int32)

    # --- taking in ---------------------------------------------------------------------------

    def observe(self, excess: Floats) -> None:
        """The next block: (T, R, C), T <= 5 steps."""
        block = low_median_of_rows(excess)
        self._learn_noise(excess, block)
        self._advance_cusum(excess)
        self._remember(excess, block)
        self._learn_scales(block)

    def learn_reference(self, held: Bools) -> None:
        """The newest block updates references of those not ``held`` (R,) with a low CUSUM."""
        block = self._last_block
        # A rank that is a little slow from the start is so for good: that is its normal, although
        # CUSUM rises on it.
        steady = (self.g <= 0.5 * self._h) | (self._reference_blocks < FIRST_REFERENCE)
        learns = np.isfinite(block) & steady & ~held[:, None]
        count = np.minimum(self._reference_blocks + learns, MAX_REFERENCE)
        known = np.where(np.isnan(self.reference), block, self.reference)
        moved = known + (block - known) / np.maximum(count, 1)
        self.reference = np.where(learns, moved, self.reference)
        self._reference_blocks = count.astype(np.int32)

    def _learn_noise(self, excess: Floats, block: Floats) -> None:
        """Noise of a step within its block, slowly."""
        rows = slice(None, None, max(1, self.shape[0] // 4096))
        if len(excess) >= 3:
            apart = np.abs(excess[:, rows] - block[rows]).reshape(-1, self.shape[1])
            new = SIGMA_OF_BLOCK_DEVIATION * median_of_rows(apart)
            self.sigma = mixed(self.sigma, np.maximum(new, MIN_SIGMA))
        self._last_block = block

    def _learn_scales(self, block: Floats) -> None:
        """Noise of blocks and of windows of 20 and 100 steps, as each ends."""
        self.noise.add(0, block)
        if self.blocks % NEWEST_BLOCKS == 0:
            self.noise.add(1, self.recent())
        if self.blocks % LONG_BLOCKS == 0:
            self.noise.add(2, self._mean_of_blocks())
        self.noise.evaluate(self.sigma)

    def _advance_cusum(self, excess: Floats) -> None:
        sigma = self.noise.sigma(self.sigma)
        sigma = np.where(np.isnan(sigma), 0.1, sigma)
        k = cusum_slack(sigma)
        mean_steps = float(self.shape[0] * STEPS_PER_DAY)
        self._h = np.array([cusum_threshold(float(value), mean_steps) for value in k])
        usable = self._reference_blocks >= MIN_REFERENCE
        normal = np.where(usable, self.reference, 0.0)
        moves = cusum_moves((excess - normal) * self._weight[:, None], sigma, k)
        is_known, maximum = not np.isnan(moves).any(), 1.5 * self._h
        for move in moves:
            self.steps += 1
            self.g = advance_cusum(self.g, move, maximum, is_known=is_known)
            self._zero_at = np.where(self.g <= 0.0, self.steps, self._zero_at)

    def _remember(self, excess: Floats, block: Floats) -> None:
        size = len(self._step_ring)
        for at, step in enumerate(excess):
            index = (self.steps - len(excess) + at) % size
            self._step_ring[index] = step
        maximum = np.fmax(4.0 * np.sqrt(self.noise.variance[0]), MAX_BLOCK)
        self._max_block = 0.9 * maximum
        drawn = np.minimum(np.maximum(block, -maximum), maximum)
        index = self.blocks % len(self._block_ring)
        for window, total in self._sums.items():
            length = window // self._settings.block_steps
            old = self._block_ring[(self.blocks - length) % len(self._block_ring)]
            leaving = old if self.blocks >= length else None
            slide(total, self._counts[window], drawn, leaving)
        self._block_ring[index] = drawn
        self._block_begins[index] = self.steps - len(excess)
        self._newest_blocks[self.blocks % NEWEST_BLOCKS] = block
        self.blocks += 1

    def widen(self, quantities: int) -> None:
        """Insert new columns before the last."""
        more = quantities - self.shape[1]
        at = [self.shape[1] - 1] * more

        def wider(values: npt.NDArray[Any], filler: float) -> npt.NDArray[Any]:
            return np.insert(values, at, filler, axis=-1)

        self.shape = (self.shape[0], quantities)
        self.noise.widen(at)
        self._sums = {w: wider(values, 0.0) for w, values in self._sums.items()}
        self._counts = {w: wider(values, 0) for w, values in self._counts.items()}
        fillers = {"g": 0.0, "_h": np.inf, "_zero_at": self.steps, "_reference_blocks": 0}
        rings = ("_block_ring", "_step_ring", "_newest_blocks", "_last_block")
        for name in (*rings, "sigma", "_max_block", "reference", *fillers):
            setattr(self, name, wider(getattr(self, name), fillers.get(name, np.nan)))

    def seed_reference(self, reference: Floats) -> None:
        """Continue from (R, C) normal values; NaN if unknown."""
        known = np.isfinite(reference)
        self.reference = np.where(known, reference, self.reference)
        self._reference_blocks[known] = KEPT_REFERENCE

    def is_known(self, effect: float) -> bool:
        """Whether it was seen for long enough how the subjects differ, and whether they take turns,
        to call one slow by this excess."""
        minimum = MIN_STEPS_OF_OBVIOUS if effect >= OBVIOUS else MIN_HISTORY_STEPS
        return self.steps_before + self.steps >= minimum

    # --- judging -------------------------------------------------------------------------------

    def evaluate(self, min_effect: Floats) -> Findings:
        """Who is beyond its peers now; an excess below ``min_effect``, (R,) or (R, C), never
        counts. Cost: O(R C log R)."""
        minimum = min_effect if min_effect.ndim == 2 else min_effect[:, None]
        if minimum.shape != self.shape:
            minimum = np.broadcast_to(minimum, self.shape)
        z = min_z(*self.shape, self._settings.min_z)
        blocks = self._reference_blocks
        past = np.where(blocks >= MIN_REFERENCE, self.reference, np.nan)
        past_error = self.noise.error(np.maximum(blocks, 1))
        windows = [np.array(each) for each in zip(*self._windows(), strict=True)]
        measured, error, freedom = windows
        recent, recent_error = measured[0], error[0]
        measured, past, past_error = measured.swapaxes(0, 1), past[:, None], past_error[:, None]
        weight = self._weight[:, None, None]
        floor = np.maximum(self._min_excess, minimum)
        values, z_of = np.empty((2, len(measured), len(error), 2, self.shape[1]))
        with np.errstate(invalid="ignore"):
            # What is over is still in the longer windows.
            is_over = measured * LASTING - 2.0 * recent_error > recent[:, None]
            effect = np.where(is_over, np.nan, measured)
            weighted = effect * weight
            spread = spread_of(weighted.reshape(len(effect), -1), error.reshape(-1)).reshape(
                error.shape
            )
            values[:, :, 0], z_of[:, :, 0] = effect, weighted / spread
            # Against the own past, where the peers' spread hides a rise.
            risen = weight * (effect - past)
            of_rise = np.sqrt(error**2 + past_error**2 + MIN_SIGMA**2)
            is_enough = effect >= 0.5 * floor[:, None]
            values[:, :, 1], z_of[:, :, 1] = risen, np.where(is_enough, risen / of_rise, np.nan)
        result = Findings.of_windows(
            values,
            z_of,
            floor,
            beyond_chance(z, freedom),
            recent=recent,
            recent_error=recent_error,
            since=np.where(self.g > 0.0, self._zero_at + 1, -1),
            spread=np.fmin.reduce(spread, axis=0, initial=np.inf),
        )
        self._verify(result, minimum, z)
        return result

    def _windows(self, part: float = 1.0) -> Iterator[tuple[Floats, Floats, Floats]]:
        """Effect (R, C), standard error and its degrees of freedom (C,) of every window that fits
        into this part of the steps."""
        noise = np.sqrt(self.noise.variance)
        short = short_of(self.steps, self._settings.windows_steps[0])
        yield self.recent(), np.fmin(short * noise[1], noise[0]), self.noise.freedom[1]
        for window in self._settings.windows_steps[1:]:
            if part * self.steps >= window:
                error = self.noise.error(window / self._settings.block_steps)
                yield self._mean(window), error, self.noise.freedom[2]

    def _mean(self, window: int) -> Floats:
        """(R, C) mean excess of the newest ``window`` steps; NaN if half is unknown."""
        length = window // self._settings.block_steps
        effect = self._sums[window] / np.maximum(self._counts[window], 1)
        return np.where(self._counts[window] >= length // 2, effect, np.nan)

    def _mean_of_blocks(self) -> Floats:
        """(R, C) of the newest 20 blocks."""
        size = len(self._block_ring)
        at = [(self.blocks - 1 - i) % size for i in range(min(LONG_BLOCKS, size))]
        blocks = self._block_ring[at].astype(np.float64)
        known = np.isfinite(blocks)
        count = known.sum(axis=0)
        mean = np.where(known, blocks, 0.0).sum(axis=0) / np.maximum(count, 1)
        return np.where(2 * count >= len(at), mean, np.nan)

    def since(self, rows: Ints, steps: int) -> Floats:
        """(rows, C) median excess of the newest ``steps`` steps, at most 20."""
        size = len(self._step_ring)
        n = max(1, min(steps, size, self.steps))
        at = [(self.steps - 1 - i) % size for i in range(n)]
        return median_of_rows(self._step_ring[np.array(at)[:, None], rows].astype(np.float64))

    def resolvable(self, min_effect: Floats, column: int = 0) -> float:
        """The slowdown in a quantity, by default the local work, that nine of ten ranks would be
        named for if they had it for three quarters of the run (1.04 = 4 %): what is called slow,
        and 1.28 standard errors."""
        z = min_z(*self.shape, self._settings.min_z)
        limits = [
            max(
                float(beyond_chance(z, freedom)[column]) * float(spread_of(effect, error)[column]),
                self._min_excess,
                median_of(min_effect),
            )
            + Z_POWER * float(error[column])
            for effect, error, freedom in self._windows(LASTING_PART)
        ]
        return math.exp(min(*limits, 700.0))

    @property
    def _min_excess(self) -> float:
        return math.log(self._settings.min_slowdown)

    def takes_turns(
        self,
        row: int,
        column: int,
        effect: float,
        since: int,
        times: float,
        was_named: Bools,
        min_run: int = MIN_RUN,
    ) -> bool:
        """See :func:`.takes_turns`, over the newest 400 steps. ``since``: observed step at which it
        began; below 1: unknown. ``was_named``: (R,), as of :class:`.BlockHistory`."""
        order = self._order_of_blocks()
        usable = self._reference_blocks[:, column] >= MIN_REFERENCE
        history = BlockHistory(
            blocks=self._block_ring[order, :, column],
            normal=np.where(usable, self.reference[:, column], 0.0),
            error=math.sqrt(float(self.noise.variance[0, column])),
            highest=float(self._max_block[column]),
            is_full=len(order) == len(self._block_ring),
            was_named=was_named,
        )
        lasted = (self.steps - since) // self._settings.block_steps if since > 0 else 0
        return takes_turns(history, row, effect, lasted, times, min_run)

    def onset(self, row: int, column: int, since: int) -> int:
        """Observed step (a count) at which the present rise began, see :func:`.onset_of`;
        ``since``, as of :class:`.Findings`, if that is before the newest 400 steps, or unknown."""
        order = self._order_of_blocks()
        normal = self.normal_of(row, column)
        error = math.sqrt(float(self.noise.variance[0, column]))
        usual = 0.0 if math.isnan(normal) else normal
        at = onset_of(self._block_ring[order, row, column], usual, error)
        if at == 0 and len(order) == len(self._block_ring):
            return since
        return int(self._block_begins[order[at]]) + 1 if at else min(since, 1)

    def _order_of_blocks(self) -> Ints:
        """Places of the remembered blocks, oldest first."""
        n = min(self.blocks, len(self._block_ring))
        return (self.blocks - n + np.arange(n)) % len(self._block_ring)

    def normal_of(self, row: int, column: int) -> float:
        """Normal excess of a subject; NaN if unknown."""
        usable = self._reference_blocks[row, column] >= MIN_REFERENCE
        return float(self.reference[row, column]) if usable else math.nan

    def recent(self) -> Floats:
        """(R, C) the newest 20 steps: median of their blocks."""
        return median_of_rows(self._newest_blocks[: min(self.blocks, NEWEST_BLOCKS)])

    def _verify(self, result: Findings, minimum: Floats, z: float) -> None:
        """Mark alarms whose excess since the onset is large enough for so many steps."""
        rows, columns = (self.g > self._h).nonzero()
        z_limits = beyond_chance(z, self.noise.freedom[1])
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            effect, error = self._since_onset(row, column)
            z_limit = float(z_limits[column] / self._weight[row])
            floor = max(self._min_excess, z_limit * error, float(minimum[row, column]))
            if self._reference_blocks[row, column] < MIN_REFERENCE:
                # Nobody knows how slow it always was: it must stand out from its peers.
                floor = max(floor, z_limit * float(result.spread[column]))
            if effect >= floor:
                result.verified[row, column] = True
                result.effect[row, column] = np.fmax(effect, result.effect[row, column])
                if not result.beyond[row, column]:
                    result.floor[row, column] = floor
                    result.z[row, column] = effect / max(error, MIN_SIGMA)

    def _since_onset(self, row: int, column: int) -> tuple[float, float]:
        """Median excess since CUSUM last was 0, and its standard error."""
        n = min(self.steps - int(self._zero_at[row, column]), self.steps)
        size = len(self._step_ring)
        error = float(self.noise.error(n / self._settings.block_steps)[column])
        if n <= size:
            at = [(self.steps - 1 - i) % size for i in range(n)]
            values = self._step_ring[at, row, column]
        else:
            blocks = min(n // self._settings.block_steps, MAX_VERIFIED_BLOCKS)
            at = [(self.blocks - 1 - i) % len(self._block_ring) for i in range(blocks)]
            values = self._block_ring[at, row, column]
        known = values[np.isfinite(values)]
        if len(known) < (VERIFY_STEPS if n <= size else NEWEST_BLOCKS):
            return 0.0, math.inf
        middle = median_of(known)
        if quantile(known, LOW_QUANTILE) < LASTING * middle:
            return 0.0, math.inf  # a few pauses close together, no lasting rise
        normal = float(self.reference[row, column])
        usable = self._reference_blocks[row, column] >= MIN_REFERENCE
        # Who was faster than its peers and is as fast now is not slow.
        usable = usable and middle >= 0.5 * max(self._min_excess, error)
        risen = max(middle, middle - normal) if usable else middle
        return risen, error
