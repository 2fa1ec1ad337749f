"""What a launcher settles before it starts anything: names, folders, variables, the agent."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_straggler import semconv
from otel_straggler.client.endpoints import NO_ENDPOINTS, Endpoints, parse_pairs, resolve_endpoints
from otel_straggler.client.identity import named_run_id
from otel_straggler.client.run_names import new_run_name
from otel_straggler.client.settings import is_switched_off, node_name
from otel_straggler.errors import ConfigError
from otel_straggler.launcher.options import WHERE, RunOptions
from otel_straggler.launcher.progress import Progress
from otel_straggler.otlp.encode_metrics import Attributes
from otel_straggler.regular_files import create_folder

if TYPE_CHECKING:
    from otel_straggler.agent.config import FaultToleranceConfig

_EVIDENCE: Final = "OTEL_STRAGGLER_EVIDENCE_DIR"
FINISHED_FLAG: Final = "FAULT_TOL_FINISHED_FLAG_FILE"
LOGS: Final = "training-logs"
_MAX_TEMPORARY: Final = 60
"""Bytes of a path in which the agent's folder, with the name of its socket, has room."""
"""Folder for the logs of runs, below the working directory, where ``--log-dir`` names none."""
_NO_SHARED_STORE: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Torchelastic lets the ranks of all attempts share one store, in which those of the next attempt
find addresses of the one before and hang or fail (pytorch/pytorch#135712; with torch 2.13 four of
six restarts over gloo)."""
StartAgent = Callable[[], AbstractContextManager[Mapping[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """The same for all jobs of one command.

    Attributes:
        run_id: empty where the nodes agree on one in their rendezvous.
        folder: of logs and events; ``finished_flag``: the file that a finished training leaves.
        environment: of torchrun and the ranks.
        resource: of the launcher's telemetry.
        agent: starts the node's agent and gives variables for the ranks; None: there is none.
        progress: decides that attempts get nowhere; None where no checkpoint is named.
    """

    run_id: str
    node: str
    folder: Path
    finished_flag: Path
    environment: dict[str, str]
    endpoints: Endpoints
    resource: Attributes
    agent: StartAgent | None
    progress: Progress | None = None

    def describe(self) -> str:
        """One line for the start."""
        name = self.run_id or "named at the rendezvous"
        return f"run {name}; logs, events and diagnostics of this node: {self.folder}"


def make_plan(options: RunOptions, env: Mapping[str, str]) -> LaunchPlan:
    """Settle all of it, and create the folder.

    Raises:
        ConfigError: an option of the agent or a variable is wrong; the folder cannot be made.
    """
    environment = dict(env)
    run_id = _run_id(options, env)
    folder = _folder(options, run_id or named_run_id(env)[0] or _rdzv_id(options))
    flag = Path(env.get(FINISHED_FLAG) or folder / "finished").absolute()
    environment[FINISHED_FLAG] = str(flag)
    environment.setdefault(_NO_SHARED_STORE, "1")
    if run_id:
        environment["OTEL_STRAGGLER_RUN_ID"] = run_id
    attributes = parse_pairs(env.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    is_off = is_switched_off(env)
    config = _config(options)
    return LaunchPlan(
        run_id=run_id,
        node=node_name(env),
        folder=folder,
        finished_flag=flag,
        environment=environment,
        endpoints=NO_ENDPOINTS if is_off else resolve_endpoints(env),
        resource={**attributes, semconv.SERVICE_NAME: _service(options, env, attributes)},
        agent=_agent(config, node_name(env), folder, environment),
        progress=_progress(config),
    )


def log_options(options: RunOptions, folder: Path) -> tuple[str, ...]:
    """Options that have torchrun keep what each rank prints, where none says otherwise."""
    given = options.given
    result: tuple[str, ...] = () if given.log_dir else ("--log-dir", str(folder))
    if str(given.tee) == "0" and str(given.redirects) == "0":
        result = (*result, "--tee", "3")
    return result


def _run_id(options: RunOptions, env: Mapping[str, str]) -> str:
    """One name for all jobs, where the ranks would find none or a new one for each; empty where
    nodes have to agree."""
    if own := env.get("OTEL_STRAGGLER_RUN_ID", "").strip():
        return own
    scheduled = named_run_id(env)[0]
    if scheduled:
        return scheduled
    is_alone = options.given.standalone or str(options.given.nnodes) in {"1", "1:1"}
    if _rdzv_id(options) and not options.given.standalone:
        return _rdzv_id(options)
    return new_run_name(_script(options)) if is_alone else ""


def _rdzv_id(options: RunOptions) -> str:
    name = str(options.given.rdzv_id or "")
    return "" if name == "none" else name


def _script(options: RunOptions) -> str:
    name: str = options.given.training_script
    return name.rpartition(".")[2] if options.given.module else Path(name).stem


def _service(options: RunOptions, env: Mapping[str, str], attributes: Mapping[str, str]) -> str:
    named = env.get("OTEL_SERVICE_NAME", "").strip() or attributes.get("service.name", "")
    return named or _script(options)


def _folder(options: RunOptions, run: str) -> Path:
    folder = options.given.log_dir and Path(options.given.log_dir)
    folder = (folder or Path(LOGS) / (run or new_run_name(_script(options)))).absolute()
    try:
        create_folder(folder)
    except OSError as error:
        raise ConfigError.of(
            f"{WHERE} --log-dir",
            str(folder),
            "a folder for the logs of all ranks",
            f"Name another one ({error.strerror}).",
        ) from error
    return folder


def _config(options: RunOptions) -> FaultToleranceConfig | None:
    if not options.agent:
        return None
    from otel_straggler.agent.config import FaultToleranceConfig

    config, others = FaultToleranceConfig.from_arguments(options.agent)
    if others:
        raise ConfigError.of(
            WHERE, " ".join(options.agent), "options of the agent", "See docs/operate/restarts.md."
        )
    return config or FaultToleranceConfig()


def _progress(config: FaultToleranceConfig | None) -> Progress | None:
    if config is None or not config.checkpoint_iteration_file:
        return None
    return Progress(
        path=os.path.abspath(config.checkpoint_iteration_file),  # noqa: PTH100  keeps links
        max_attempts=config.max_no_progress_cycles,
        min_steps=config.min_progress_iterations,
    )


def _agent(
    config: FaultToleranceConfig | None, node: str, folder: Path, env: Mapping[str, str]
) -> StartAgent | None:
    """Its socket is in a folder of this launcher alone: paths of sockets are short, and not every
    file system has them."""
    if config is None:
        return None
    own = {_EVIDENCE: str(folder / f"diagnostics-{node}")}
    return lambda: _running_agent(config, {**own, **env})


@contextlib.contextmanager
def _running_agent(
    config: FaultToleranceConfig, environment: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    from otel_straggler.agent.process import running_agent

    with (
        tempfile.TemporaryDirectory(prefix="otel-straggler-agent-", dir=_for_sockets()) as folder,
        running_agent(config, folder=folder, environment=environment) as variables,
    ):
        yield variables


def _for_sockets() -> str:
    """The folder of temporary files, unless its path leaves no room for a socket's, as that of a
    job can."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _MAX_TEMPORARY else "/tmp"  # noqa: S108
