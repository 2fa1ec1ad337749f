"""Configuration of the rank monitor, with NVRx's names: from YAML, arguments, and code."""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from otel_straggler.agent.config_kinds import (
    ACTION,
    FOLDER,
    LOG_LEVEL,
    SECTIONS,
    SIGNAL,
    STEP_FILE,
    TIMEOUT,
    read_text,
)
from otel_straggler.detect.hangs.rank_timeouts import SAFETY_FACTOR, LearningRules
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.regular_files import read_small_text
from otel_straggler.setting import above, integer, number, option, rows_of
from otel_straggler.strict_json import parse_json
from otel_straggler.yaml_file import parse_yaml

SECTION: Final = "fault_tolerance"
FILE_FLAGS: Final = ("--fault-tol-cfg-path", "--ft-cfg-path")
PREFIXES: Final = ("--ft-param-", "--ft-")
TORCHRUN_FLAGS: Final = frozenset(
    {
        *("--help", "-h", "--standalone", "--module", "-m", "--no-python", "--run-path"),
        *("--virtual-local-rank", "--no-resource-monitor"),
    }
)
"""Options of torchrun that take no value; after another one's value the script may begin."""
_LOG = logging.getLogger("otel_straggler")
_NOTHING_WAITS = "restart_check_interval skip_section_response"
_SENSORS = (
    "node_health_check_interval enable_nic_monitor enable_nic_healthcheck pci_topo_file "
    "enable_dist_storage_healthcheck storage_healthcheck_path link_down_path_template "
    "link_state_path_template"
)
_LAUNCHER = (
    "segment numa_bind_strict gpu_memory_reclaim_timeout gpu_memory_tolerance_mb "
    "gpu_memory_poll_interval check_remaining_processes install_exception_hook cycle_info_dir "
    "use_infra_group_rank restart_policy"
)
_ATTRIBUTION = "attribution_endpoint attribution_stop_action attribution_export_url"
_NOT_HERE: Final = {
    **dict.fromkeys(_NOTHING_WAITS.split(), "nothing waits here"),
    **dict.fromkeys(_SENSORS.split(), "the collector reads sensors and XIDs (extra 'gpu')"),
    **dict.fromkeys(_LAUNCHER.split(), "torchrun starts and restarts ranks"),
    **dict.fromkeys(_ATTRIBUTION.split(), "the collector names culprits"),
}
"""NVRx's fields without an effect here, and why: accepted, with a warning."""


@dataclass
class FaultToleranceConfig:
    """What the rank monitor watches for, and what it does then. Timeouts are seconds; None: never.

    Raises:
        ConfigError: a value is not accepted.
    """

    workload_check_interval: float = option(
        5.0, above(0, 3_600), "seconds between two checks of all ranks of the node"
    )
    initial_rank_heartbeat_timeout: float | None = option(
        3_600.0, TIMEOUT, "until the first heartbeat; not for a rank that works with sections"
    )
    rank_heartbeat_timeout: float | None = option(2_700.0, TIMEOUT, "between two heartbeats")
    rank_section_timeouts: Mapping[str, float | None] = field(
        default_factory=dict,
        metadata=option(
            None, SECTIONS, "by name of a section; others are ignored, null: only learned"
        ).metadata,
    )
    rank_out_of_section_timeout: float | None = option(None, TIMEOUT, "while no section is open")
    safety_factor: float = option(
        SAFETY_FACTOR, number(1, 1_000), "learned timeouts are so many times the longest interval"
    )
    num_warmup_iterations: int = option(
        5, integer(0), 'steps in which "step" may take as long as the timeout of "warmup"'
    )
    timeout_action: str = option(
        "observe",
        ACTION,
        "observe: log, report and write diagnostics; signal: also send rank_notification_signal to "
        "a rank that handles it; terminate: also SIGCONT and rank_termination_signal",
    )
    rank_termination_signal: signal.Signals = option(  # noqa: RUF009  a field
        signal.SIGKILL, SIGNAL, "of terminate"
    )
    rank_notification_signal: signal.Signals = option(  # noqa: RUF009  a field
        signal.SIGUSR1, SIGNAL, "of signal"
    )
    diagnostics_dir: str = option(
        "", FOLDER, "for diagnostics; empty: OTEL_STRAGGLER_EVIDENCE_DIR, else the agent's folder"
    )
    log_level: int = option(logging.INFO, LOG_LEVEL, "of the agent's log")
    checkpoint_iteration_file: str | None = option(
        None,
        STEP_FILE,
        "file with the step of the newest checkpoint, or a folder of checkpoint.Manager: the "
        "launcher looks there after each attempt that failed",
    )
    max_no_progress_cycles: int = option(
        3, integer(0), "attempts in a row without a newer checkpoint that are the last; 0: no end"
    )
    min_progress_iterations: int = option(
        1, integer(1), "a checkpoint is newer if it is so many steps further"
    )

    def __post_init__(self) -> None:
        for key, row in rows_of(FaultToleranceConfig).items():
            setattr(self, key, row.checked(getattr(self, key), f"{SECTION}.{key}"))

    @classmethod
    def from_kwargs(
        cls, ignore_not_recognized: bool = False, **values: Any
    ) -> FaultToleranceConfig:
        """From keyword arguments.

        Raises:
            ConfigError: a name is unknown, unless that is to be ignored; a value is not accepted.
        """
        if ignore_not_recognized:
            values = {key: value for key, value in values.items() if key in _ROWS}
        return cls(**_known(values, f"{SECTION}."))

    @classmethod
    def from_yaml_file(
        cls, cfg_path: str | os.PathLike[str], ignore_not_recognized: bool = False
    ) -> FaultToleranceConfig:
        """From the section ``fault_tolerance`` of a file, at any depth.

        Raises:
            ConfigError: there is no such file or section, or several; or as ``from_kwargs``.
        """
        values = dict(_section_of(cfg_path))
        if ignore_not_recognized:
            values = {key: value for key, value in values.items() if key in _ROWS}
        return cls(**_known(values, f"{cfg_path}: {SECTION}."))

    @classmethod
    def from_arguments(
        cls, arguments: Sequence[str]
    ) -> tuple[FaultToleranceConfig | None, list[str]]:
        """From a command line of torchrun with ``--ft-param-NAME``, ``--ft-NAME`` and
        ``--ft-cfg-path`` before the script; arguments win over the file.

        Returns:
            The configuration, None if nothing was said of it; and the other arguments.

        Raises:
            ConfigError: a name is unknown, a value is missing or not accepted.
        """
        given, others = _taken(arguments)
        path = next((given.pop(flag) for flag in FILE_FLAGS if flag in given), None)
        if path is None and not given:
            return None, others
        file = {} if path is None else _known(dict(_section_of(path)), f"{path}: {SECTION}.")
        config = cls(**file)
        for flag, text in given.items():
            key = _field_of(flag)
            setattr(config, key, _ROWS[key].checked(read_text(_ROWS[key].kind, text), flag, text))
        return config, others

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> FaultToleranceConfig:
        """From parsed arguments ``ft_NAME`` and ``ft_cfg_path``; None: not given.

        Raises:
            ConfigError: nothing was given; or as ``from_yaml_file``.
        """
        path = getattr(args, "ft_cfg_path", None)
        given = {key: getattr(args, f"ft_{key}", None) for key in _ROWS}
        given = {key: value for key, value in given.items() if value is not None}
        if path is None and not given:
            expected = "ft_cfg_path or an argument ft_NAME"
            raise ConfigError.of("from_args", None, expected, "Give a file or a setting.")
        config = cls() if path is None else cls.from_yaml_file(path)
        for key, value in given.items():
            is_text = isinstance(value, str)
            read = read_text(_ROWS[key].kind, str(value)) if is_text else value
            setattr(config, key, _ROWS[key].checked(read, f"ft_{key}", value))
        return config

    @property
    def learning_rules(self) -> LearningRules:
        """A learned timeout is not shorter than what a check can see."""
        return LearningRules(self.safety_factor, self.workload_check_interval)

    def as_values(self) -> dict[str, Any]:
        """In JSON types, as in a file."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            key: value.name if isinstance(value, signal.Signals) else value
            for key, value in values.items()
        }

    def to_yaml_file(self, cfg_path: str | os.PathLike[str]) -> None:
        """Write a file that ``from_yaml_file`` reads; JSON, which is YAML."""
        text = json.dumps({SECTION: self.as_values()}, indent=2)
        Path(cfg_path).write_text(text + "\n", encoding="utf-8")


_ROWS: Final = rows_of(FaultToleranceConfig)
_DEFAULTS: Final = FaultToleranceConfig().as_values()


def _known(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The fields that have an effect, checked."""
    result = {}
    for key, value in values.items():
        if key in _ROWS:
            result[key] = _ROWS[key].checked(value, prefix + key)
        elif key in _NOT_HERE:
            _LOG.warning("%s%s has no effect here: %s.", prefix, key, _NOT_HERE[key])
        else:
            close = difflib.get_close_matches(str(key), _ROWS, n=1, cutoff=0.0)
            expected = f"one of {', '.join(_ROWS)}"
            raise ConfigError.of(prefix + str(key), key, expected, f"Did you mean {close[0]}?")
    return result


def _section_of(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    remedy = f"Indent the settings under a key {SECTION!r}, one 'name: value' a line."
    found = list(_sections_in(_document(path)))
    if len(found) != 1:
        value = f"{len(found)} sections {SECTION!r}" if found else "none"
        raise ConfigError.of(str(path), value, f"one section {SECTION!r}", remedy)
    if not isinstance(found[0], Mapping):
        raise ConfigError.of(f"{path}: {SECTION}", found[0], "a mapping of settings", remedy)
    return found[0]


def _document(path: str | os.PathLike[str]) -> Any:
    try:
        text = read_small_text(Path(path), follow=True)
    except (OSError, InputError) as error:
        remedy = "Correct the path, or leave the option out."
        raise ConfigError.of(str(path), str(error), "a YAML file", remedy) from error
    try:
        return parse_json(text)
    except ValueError:
        return parse_yaml(text, str(path), "Correct the file.", f"{path} (or write it as JSON)")


def _sections_in(document: Any) -> Iterator[Any]:
    if isinstance(document, Mapping):
        if SECTION in document:
            yield document[SECTION]
        for key, value in document.items():
            if key != SECTION:
                yield from _sections_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from _sections_in(value)


def _taken(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Our options by flag, and what is left. What follows the script is the script's."""
    given: dict[str, str] = {}
    others: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        flag, equals, value = argument.partition("=")
        if flag in FILE_FLAGS or flag.startswith(PREFIXES):
            if not equals:
                value = next(waiting, "--")
            if value.startswith("--"):
                raise ConfigError.of(flag, "nothing", "a value", f"Write {flag}=VALUE.")
            if flag in FILE_FLAGS or _field_of(flag):
                given[flag] = value
            continue
        others.append(argument)
        if not argument.startswith("-"):
            break
        if not equals and flag.replace("_", "-") not in TORCHRUN_FLAGS:
            others += [value for value in [next(waiting, None)] if value is not None]
    return given, [*others, *waiting]


def _field_of(flag: str) -> str:
    """The field of an option; empty for one of NVRx's without an effect here."""
    prefix = next(prefix for prefix in PREFIXES if flag.startswith(prefix))
    name = flag.removeprefix(prefix).replace("-", "_")
    return name if _known({name: _DEFAULTS.get(name)}, f"{prefix}") else ""
