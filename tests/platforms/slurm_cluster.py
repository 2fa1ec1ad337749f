"""A Slurm of one node on loopback, and a stand-in of its commands for where there is none."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..waiting import eventually

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
MISSING = (
    "no Slurm daemons here (Debian: slurm-wlm): they would show that Slurm accepts the scripts and "
    "that a job ends with the report of its run"
)
_CONFIG = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
SchedulerParameters=sched_interval=1
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=8000
PartitionName=all Nodes={host} Default=YES MaxTime=10-0 OverSubscribe=FORCE State=UP
{more}
"""
_SRUN = """#!{python}
# Starts the command once for each task, as srun does.
import os, subprocess, sys
n = int(os.environ["SLURM_NTASKS"])
envs = [os.environ | {{"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)}} for i in range(n)]
tasks = [subprocess.Popen(sys.argv[1:], env=env) for env in envs]
sys.exit(max(task.wait() for task in tasks))
"""
_SCONTROL = "#!/bin/sh\necho 127.0.0.1\n"


def has_daemons() -> bool:
    return all(shutil.which(name) for name in PROGRAMS)


def job_environment(folder: Path) -> dict[str, str]:
    """What a script sees on loopback, with our commands on its PATH."""
    commands = Path(sys.executable).parent
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "SLURM_"))}
    return env | {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "STRAGGLER_LISTEN": "127.0.0.1",
        "STRAGGLER_HOST": "127.0.0.1",
        "STRAGGLER_OTLP_PORT": "0",
        "STRAGGLER_METRICS_PORT": "0",
        "STRAGGLER_HOME": str(folder / "home"),
        "TMPDIR": str(folder),
        "NO_PROXY": "*",
    }


def simulated_job(folder: Path, tasks: int) -> dict[str, str]:
    """The environment of a job's script, with stand-ins for srun and scontrol on its PATH."""
    env = job_environment(folder)
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("srun", _SRUN.format(python=sys.executable)), ("scontrol", _SCONTROL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return env | {
        "PATH": f"{programs}{os.pathsep}{env['PATH']}",
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NODELIST": "node-[0-1]",
        "SLURM_NTASKS": str(tasks),
    }


@contextmanager
def running_cluster(folder: Path, more: str = "") -> Iterator[dict[str, str]]:
    """Controller and one node, without munge; the environment for Slurm's commands.

    Args:
        more: lines of slurm.conf.
    """
    host = socket.gethostname().partition(".")[0]
    config = folder / "slurm.conf"
    config.write_text(
        _CONFIG.format(
            host=host,
            user=getpass.getuser(),
            folder=folder,
            controller_port=free_port(),
            node_port=free_port(),
            more=more,
        )
    )
    for name in ("state", "spool"):
        (folder / name).mkdir()
    env = job_environment(folder) | {"SLURM_CONF": str(config)}
    with ExitStack() as daemons:
        for name, options in (("slurmctld", []), ("slurmd", ["-N", host])):
            log = daemons.enter_context((folder / f"{name}.log").open("wb"))
            command = [str(shutil.which(name)), "-D", "-f", str(config), *options]
            daemon = subprocess.Popen(command, env=env, stdout=log, stderr=log)
            daemons.callback(_end, daemon)
        eventually(lambda: "idle" in _sinfo(env), 120)
        yield env


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _sinfo(env: dict[str, str]) -> str:
    command = ["sinfo", "--noheader", "--format=%T"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
