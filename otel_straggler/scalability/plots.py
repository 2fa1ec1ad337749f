"""Plots of a scalability report, with matplotlib, under the names that itwinai gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.scalability.scaling import ScalingPoint, ScalingReport, Statistic

_SUFFIX = re.compile(r"[\w.-]*\.[a-z]{2,4}", re.ASCII)
_SIZE_IN = (7.0, 4.5)
_MARKERS = "osD^vP*X"
_Value = Callable[[ScalingPoint], Statistic]


def save_plots(report: ScalingReport, folder: str, suffix: str = ".png") -> list[Path]:
    """Write a file for each quantity that is known; returns their paths.

    Args:
        suffix: end of the names, such as ``.png``, ``.pdf`` or ``_run7.svg``.

    Raises:
        UnavailableError: matplotlib is not installed.
        ConfigError: matplotlib writes no such files.
        OSError: the folder cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UnavailableError.of(
            "plots", f"no {error.name}", "matplotlib", "Run: pip install 'otel-straggler[plots]'"
        ) from None
    known_suffixes = Figure().canvas.get_supported_filetypes()
    if not _SUFFIX.fullmatch(suffix) or suffix.rpartition(".")[2] not in known_suffixes:
        expected = f"an end of a file name such as .png or .svg, of {', '.join(known_suffixes)}"
        raise ConfigError.of("--plot-file-suffix", suffix, expected, "The default is .png.")
    Path(folder).mkdir(parents=True, exist_ok=True)
    saved = []
    for name, draw in _PLOTS.items():
        figure = Figure(figsize=_SIZE_IN, layout="constrained")
        axes = figure.add_subplot()
        if draw(axes, report):
            path = Path(folder) / f"{name}{suffix}"
            figure.savefig(path, dpi=150)
            saved.append(path)
    return saved


_Line = tuple[str, list[ScalingPoint]]


def _lines(report: ScalingReport, value: _Value) -> Iterator[_Line]:
    """Points of each strategy of which a value is known, with its label."""
    units = {point.key.unit for point in report.points if value(point).is_known}
    by_line: dict[tuple[str, str], list[ScalingPoint]] = {}
    for point in report.points:
        if value(point).is_known:
            by_line.setdefault((point.key.strategy, point.key.unit), []).append(point)
    for (strategy, unit), points in by_line.items():
        yield (f"{strategy} ({unit})" if len(units) > 1 else strategy), points


def _finish(axes: Any, lines: Sequence[_Line], label: str, *, log_y: bool) -> None:
    from matplotlib.ticker import LogLocator

    sizes = sorted({point.key.size for _, points in lines for point in points})
    units = " or ".join(sorted({point.key.unit for _, points in lines for point in points}))
    axes.set_xscale("log", base=2)
    if log_y:
        axes.set_yscale("log", base=2)
        low, high = axes.get_ylim()
        subs = (1.0,) if high > 8.0 * low else (1.0, 1.25, 1.5, 1.75)
        axes.yaxis.set_major_locator(LogLocator(base=2, subs=subs, numticks=12))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel(f"number of {units}")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def _draw_lines(
    value: _Value, label: str, *, log_y: bool, scale: float = 1.0
) -> Callable[..., bool]:
    def draw(axes: Any, report: ScalingReport) -> bool:
        lines = list(_lines(report, value))
        if not lines:
            return False
        _plot(axes, lines, value, scale)
        if not log_y:
            axes.set_ylim(bottom=0.0)
        _finish(axes, lines, label, log_y=log_y)
        return True

    return draw


def _plot(axes: Any, lines: Sequence[_Line], value: _Value, scale: float = 1.0) -> None:
    """With bars of one standard deviation where there are repeats."""
    for number, (name, points) in enumerate(lines):
        each = [value(point) for point in points]
        deviations = [0.0 if d != d else d * scale for d in (one.deviation for one in each)]
        axes.errorbar(
            [point.key.size for point in points],
            [one.mean * scale for one in each],
            yerr=deviations if any(deviations) else None,
            marker=_MARKERS[number % len(_MARKERS)],
            capsize=4,
            label=name,
        )


def _draw_speedup(axes: Any, report: ScalingReport) -> bool:
    lines = [line for line in _lines(report, lambda point: point.speedup) if len(line[1]) > 1]
    if not lines:
        return False
    _plot(axes, lines, lambda point: point.speedup)
    first = min(point.key.size for _, points in lines for point in points)
    last = max(point.key.size for _, points in lines for point in points)
    axes.plot([first, last], [1.0, last / first], "--", color="gray", label="ideal")
    bases = sorted({point.basis for _, points in lines for point in points})
    _finish(axes, lines, f"relative speedup ({', '.join(bases)})", log_y=True)
    return True


_PARTS = (
    ("compute", "compute", "#4c78a8"),
    ("exposed_communication", "communication, exposed", "#e45756"),
    ("rest", "copies and fills", "#b8b0ac"),
    ("idle", "idle", "#eeeeee"),
)


def _draw_time(axes: Any, report: ScalingReport) -> bool:
    points = [point for point in report.points if point.time is not None]
    if not points:
        return False
    names = [f"{point.key.strategy}\n{point.key.size} {point.key.unit}" for point in points]
    bottom = [0.0] * len(points)
    for part, label, color in _PARTS:
        heights = [_part(point, part) for point in points]
        axes.bar(
            names, heights, bottom=bottom, label=label, color=color, edgecolor="gray", width=0.6
        )
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    axes.set_ylabel("share of the time")
    axes.set_ylim(0.0, 1.0)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return True


def _part(point: ScalingPoint, part: str) -> float:
    assert point.time is not None
    if part == "rest":
        return max(point.time.other - point.time.exposed_communication, 0.0)
    return float(getattr(point.time, part))


def _efficiency(point: ScalingPoint) -> Statistic:
    return Statistic(point.efficiency)


_PLOTS: dict[str, Callable[[Any, ScalingReport], bool]] = {
    "absolute_epoch_time": _draw_lines(lambda p: p.epoch_s, "average epoch time (s)", log_y=True),
    "relative_epoch_time_speedup": _draw_speedup,
    "efficiency_plot": _draw_lines(_efficiency, "efficiency (%)", log_y=False, scale=100.0),
    "step_time_plot": _draw_lines(lambda p: p.step_s, "step time (ms)", log_y=True, scale=1e3),
    "samples_per_second_plot": _draw_lines(lambda p: p.samples_per_s, "samples/s", log_y=True),
    "tokens_per_second_plot": _draw_lines(lambda p: p.tokens_per_s, "tokens/s", log_y=True),
    "utilization_plot": _draw_lines(
        lambda p: p.utilization, "GPU utilization (%)", log_y=False, scale=100.0
    ),
    "gpu_energy_plot": _draw_lines(lambda p: p.energy_wh, "energy (Wh)", log_y=False),
    "computation_vs_other_plot": _draw_lines(
        lambda p: p.computation, "computation (%)", log_y=False, scale=100.0
    ),
    "computation_vs_communication_plot": _draw_time,
}
