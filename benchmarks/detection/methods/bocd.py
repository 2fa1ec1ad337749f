"""Bayesian online change-point detection with verification, as Greyhound uses it.

Adams and MacKay's run-length recursion with constant hazard 1/lambda and Student-t predictive.
A point is the median over one table of a rank's local time, over that of its role, in logs.
"The run length is 0" means that the newest point is the first of a new segment and is predicted
by the prior: in the other convention P(r = 0) is always 1/lambda. The alarm P(r = 0) > 0.9 is
verified: the mean of 2 points from the alarm on is 10 % above that of the 4 points before
(|before - after| / larger). A verified change back ends the episode. Who is slow from the first
step never changes, so it is never found.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp

from benchmarks.detection.episodes import Episode, FlagTracker
from benchmarks.detection.methods.signals import LocalTimes, by_role, median_over_steps, total
from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable

LAMBDA_POINTS = 250.0
MIN_POSTERIOR = 0.9
LONGEST_RUN = 40
POINTS_BEFORE, POINTS_AFTER = 4, 2
MIN_SIGMA = 0.002


class RunLengths:
    """Posterior over run lengths of R series at once, run lengths from ``longest`` on as one.

    The prior of a segment is normal-gamma: mean 0, ``kappa_0`` = 0.01 (the mean of a segment
    lies within about ten standard deviations), ``alpha_0`` = 2 and the spread that is given.
    Cost per point: O(R * longest).
    """

    KAPPA_0, ALPHA_0 = 0.01, 2.0

    def __init__(self, n: int, sigma: float, longest: int = LONGEST_RUN) -> None:
        lengths = np.arange(longest + 1)
        self._kappa = self.KAPPA_0 + lengths
        self._alpha = self.ALPHA_0 + lengths / 2
        self._beta_0 = self.ALPHA_0 * sigma**2
        self._constant = _t_constant(2 * self._alpha)
        self._log_p = np.full((n, longest), -np.inf)
        self._mean = np.zeros((n, longest))
        self._beta = np.full((n, longest), self._beta_0)
        self._is_empty = np.ones(n, np.bool_)

    def take(self, points: Floats) -> Floats:
        """(R,) P(r = 0) with the next point of every series; NaN leaves a series as it is."""
        reported = ~np.isnan(points)
        point = np.where(reported, points, 0.0)[:, None]
        log_new = np.log(1 / LAMBDA_POINTS) + self._log_predictive(point, is_new=True)[:, 0]
        log_old = self._log_p + np.log1p(-1 / LAMBDA_POINTS) + self._log_predictive(point)
        log_new[self._is_empty] = 0.0
        norm = logsumexp(np.column_stack((log_new, log_old)), axis=1)
        mean, beta = self._updated(point)
        self._shift(reported, log_new - norm, log_old - norm[:, None], (mean, beta), point)
        was_empty, self._is_empty = self._is_empty, self._is_empty & ~reported
        return np.where(reported & ~was_empty, np.exp(log_new - norm), 0.0)

    def _log_predictive(self, point: Floats, *, is_new: bool = False) -> Floats:
        """Student-t of the next point, for runs of length 1.. (column i: i + 1 points)."""
        at = slice(0, 1) if is_new else slice(1, None)
        kappa, alpha = self._kappa[at], self._alpha[at]
        mean, beta = (0.0, self._beta_0) if is_new else (self._mean, self._beta)
        variance = beta * (kappa + 1) / (alpha * kappa)
        distance = (point - mean) ** 2 / variance
        return np.asarray(
            self._constant[at]
            - 0.5 * np.log(variance)
            - (alpha + 0.5) * np.log1p(distance / (2 * alpha))
        )

    def _updated(self, point: Floats) -> tuple[Floats, Floats]:
        kappa = self._kappa[1:]
        mean = (kappa * self._mean + point) / (kappa + 1)
        beta = self._beta + kappa * (point - self._mean) ** 2 / (2 * (kappa + 1))
        return mean, beta

    def _shift(
        self,
        reported: npt.NDArray[np.bool_],
        log_new: Floats,
        log_old: Floats,
        updated: tuple[Floats, Floats],
        point: Floats,
    ) -> None:
        """Every run is a point longer; the two longest become one, with the older's numbers."""
        kappa_0 = self.KAPPA_0
        first_mean = point / (kappa_0 + 1)
        first_beta = self._beta_0 + kappa_0 * point**2 / (2 * (kappa_0 + 1))
        log_p = np.column_stack((log_new, log_old[:, :-1]))
        is_older = log_old[:, -1] > log_p[:, -1]
        log_p[:, -1] = np.logaddexp(log_p[:, -1], log_old[:, -1])
        self._log_p = np.where(reported[:, None], log_p, self._log_p)
        for name, firsts, grown in (
            ("_mean", first_mean, updated[0]),
            ("_beta", first_beta, updated[1]),
        ):
            moved = np.column_stack((firsts, grown[:, :-1]))
            moved[:, -1] = np.where(is_older, grown[:, -1], moved[:, -1])
            setattr(self, name, np.where(reported[:, None], moved, getattr(self, name)))


class Bocd:
    """Change points of every rank against its role. Strength = verified change."""

    has_host_scope = False

    def __init__(self, min_change: float = 0.10) -> None:
        self.name = f"bocd + verify {min_change:.0%}".replace("%", " %")
        self.strengths: Floats = np.zeros(0)
        self._min_change = min_change
        self._times = LocalTimes()
        self._flags = FlagTracker()
        self._begin()

    def take(self, table: StepTable) -> list[Episode]:
        """Episodes that begin with these steps."""
        before = self._times.ranks
        self._times.take(table)
        if self._times.ranks != before:
            self._begin()
        point = self._point()
        self._points.append(point)
        if self._lengths is None:
            return self._check_spread()
        alarm = self._lengths.take(point) > MIN_POSTERIOR
        self._alarms.append(alarm)
        self._verify()
        return self._flags.take(self._times.ranks, self._slow, self.strengths, int(table.steps[-1]))

    def _begin(self) -> None:
        n = len(self._times.ranks)
        self._lengths: RunLengths | None = None
        self._points: deque[Floats] = deque(maxlen=POINTS_BEFORE + POINTS_AFTER)
        self._alarms: deque[npt.NDArray[np.bool_]] = deque(maxlen=POINTS_AFTER)
        self._slow = np.zeros(n, np.bool_)
        self.strengths = np.zeros(n)

    def _point(self) -> Floats:
        """(R,) log of the rank's time over its role's, newest table."""
        own = np.log(median_over_steps(total(self._times.newest)))
        for group in by_role(self._times.roles):
            if not np.isnan(own[group]).all():
                own[group] -= np.nanmedian(own[group])
        return own

    def _check_spread(self) -> list[Episode]:
        """The prior's spread is that of the first points around each rank's own median."""
        if len(self._points) == POINTS_BEFORE:
            points = np.stack(self._points)
            apart = np.abs(points - median_over_steps(points))
            sigma = max(1.4826 * float(np.nanmedian(apart)), MIN_SIGMA)
            self._lengths = RunLengths(points.shape[1], sigma)
            for point in points:
                self._lengths.take(point)
        return []

    def _verify(self) -> None:
        if len(self._points) < POINTS_BEFORE + POINTS_AFTER or len(self._alarms) < POINTS_AFTER:
            return
        points = np.exp(np.stack(self._points))
        before, after = points[:POINTS_BEFORE].mean(axis=0), points[POINTS_BEFORE:].mean(axis=0)
        change = (after - before) / np.maximum(after, before)
        due = self._alarms[0] & ~np.isnan(change)
        slower = due & (change >= self._min_change)
        faster = due & (change <= -self._min_change)
        self._slow = (self._slow | slower) & ~faster
        self.strengths = np.where(slower, change, np.where(self._slow, self.strengths, 0.0))


def _t_constant(df: Floats) -> Floats:
    """Logarithm of the constant of Student's t density with ``df`` degrees of freedom."""
    return np.asarray(gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * np.pi))
