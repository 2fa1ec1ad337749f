"""How long a newcomer waits for the name of the slow rank, from a checkout on a clean machine.

    python -m benchmarks.first_answer [--without-torch | --with-torch]

Both ways begin with a new virtual environment and a copy of the files of this checkout, and
install the package as the README says: pip compiles it, and takes libraries from the package
index, or from its own cache where an earlier install has left them there.

``without_torch``: create the environment, install, `otel-straggler demo`, until the
notification that names the slow rank is printed.

``with_torch``: the environment has torch already (that of this process, linked, so that it is not
downloaded). Install, start a collector, and start four gloo ranks with torchrun. Their script is
the README's lines after a model, an optimizer and a loader; rank 2 takes half as long again in
forward. Until the answer on the live page is that rank, as its API has it. Typing is not counted.

JSON to standard output, progress and budgets to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result
from benchmarks.harness.processes import serving
from otel_straggler.demo.processes import end

Json = dict[str, Any]
ROOT = Path(__file__).parents[1]
MAX_DEMO_S, MAX_TRAINING_S = 60.0, 120.0
LONGEST_S = 600.0
SLOW_RANK = 2
RUN_ID = "first-answer"
TRAINING = f"""\
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class Network(torch.nn.Linear):
    def forward(self, inputs):
        time.sleep(0.03 if dist.get_rank() == {SLOW_RANK} else 0.02)
        return super().forward(inputs).square().mean()


dist.init_process_group("gloo")
torch.set_num_threads(1)
model = DistributedDataParallel(Network(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
dataloader = DataLoader(torch.randn(40_000, 64), batch_size=4)

"""
"""What a newcomer has: the README's lines follow. Minutes of training; it is ended once it was
named."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if the slow rank was not named."""
    args = _parser().parse_args(arguments)
    results: Json = {}
    for name, way in WAYS.items():
        if args.only in (None, name):
            print(f"{name} ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="first-answer-") as folder:
                results[name] = way(Path(folder))
    budgets = {
        f"{name}, seconds to the named rank": judge(result["total_s"], BUDGETS_S[name], "s")
        for name, result in results.items()
    }
    print_result({**about("torch", "pip"), **results}, budgets)
    return int(not all(result["is_right"] for result in results.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_answer")
    one = parser.add_mutually_exclusive_group()
    for name in WAYS:
        flag = f"--{name.replace('_', '-')}"
        one.add_argument(flag, dest="only", action="store_const", const=name, help="this alone")
    return parser


class Stopwatch:
    """Seconds since the start, and of each part; ``print`` what took how long as it goes."""

    def __init__(self) -> None:
        self._began_s = self._part_began_s = time.monotonic()
        self.parts: Json = {}

    def part(self, name: str) -> None:
        """End a part."""
        now_s = time.monotonic()
        self.parts[f"{name}_s"] = round(now_s - self._part_began_s, 1)
        self._part_began_s = now_s
        print(f"  {name}: {self.parts[f'{name}_s']} s", file=sys.stderr, flush=True)

    def result(self, answer: str, *, is_right: bool, **more: Any) -> Json:
        total_s = round(self._part_began_s - self._began_s, 1)
        return {"total_s": total_s, **self.parts, "answer": answer, "is_right": is_right, **more}


def without_torch(folder: Path) -> Json:
    """From no environment to the demo's notification."""
    checkout = _checkout(folder)
    watch = Stopwatch()
    programs = _new_environment(folder)
    watch.part("environment")
    cpu_s = _install(programs, checkout, "cli,collector")
    watch.part("install")
    demo = _started([str(programs / "otel-straggler"), "demo"], checkout)
    with demo:
        assert demo.stdout is not None
        rank, answer = named_in_demo(demo.stdout)
        watch.part("demo")
        rest = demo.stdout.read()
    through = "Alertmanager" if "through Alertmanager" in answer + rest else "the collector"
    is_right = rank is not None and demo.returncode == 0
    more = {"install_cpu_s": round(cpu_s, 1), "notified_by": through}
    return watch.result(answer.strip(), is_right=is_right, **more)


def named_in_demo(lines: Iterator[str]) -> tuple[int | None, str]:
    """The rank, and the line that names it.

    Args:
        lines: what `otel-straggler demo` prints.

    Returns:
        The rank that the demo has made slow, and the line of the notification that names it; None
        and an empty line if none does.
    """
    rank = None
    for line in lines:
        if (planted := re.search(r"Rank (\d+) .*needs longer in", line)) is not None:
            rank = int(planted[1])
        elif rank is not None and re.search(rf"\b[Rr]ank {rank}\b", line):
            return rank, line.strip(" \n│")
    return None, ""


def with_torch(folder: Path) -> Json:
    """From an environment with torch to the answer on the live page."""
    checkout = _checkout(folder)
    programs = _new_environment(folder)
    _link_torch(programs, folder)
    script = folder / "train.py"
    watch = Stopwatch()
    cpu_s = _install(programs, checkout, "all")
    watch.part("install")
    python = str(programs / "python")
    ports = [f"--{name}=127.0.0.1:0" for name in ("otlp-http", "otlp-grpc", "metrics")]
    with serving([str(programs / "otel-straggler"), "collector", *ports]) as (line, _):
        where = json.loads(line)
        watch.part("collector")
        script.write_text(TRAINING + lines_of_readme(f"http://{where['otlp_http']}"))
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
        training = _started([python, *torchrun, str(script)], checkout, stderr=folder / "log")
        try:
            answer = _answer_of_page(f"http://{where['metrics']}/v1/run?run={RUN_ID}", training)
        except TimeoutError as error:
            raise RuntimeError(f"{error}; its log:\n{(folder / 'log').read_text()}") from None
        finally:
            end(training)
        watch.part("training")
    more = {"install_cpu_s": round(cpu_s, 1), "since_step": answer["since_step"]}
    return watch.result(answer["sentence"], is_right=is_planted(answer), **more)


def is_planted(answer: Json) -> bool:
    """Whether an answer names the rank that was made slow, where it was."""
    return (answer["rank"], answer["section"]) == (SLOW_RANK, "forward")


def lines_of_readme(endpoint: str) -> str:
    """The Python of the README that watches a training, with another endpoint."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if "ots.watch(" in block]
    return str(code.replace("http://127.0.0.1:4318", endpoint))


def _answer_of_page(url: str, training: subprocess.Popen[str]) -> Json:
    """Of the page, once it is a slow rank."""
    ends_at_s = time.monotonic() + LONGEST_S
    while time.monotonic() < ends_at_s and training.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as page:
            answer: Json = json.load(page)["answer"]
            if answer["kind"] == "straggler" and answer["rank"] is not None:
                return answer
        time.sleep(0.1)
    raise TimeoutError(f"no rank was named; exit code of the training: {training.poll()}")


def _checkout(folder: Path) -> Path:
    """A copy of this checkout as git has its files, so that nothing is built in it yet."""
    target = folder / "checkout"
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    for name in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(
        "\0"
    ):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


def _new_environment(folder: Path) -> Path:
    """The folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    return folder / "env" / "bin"


def _install(programs: Path, checkout: Path, extras: str) -> float:
    """As the README does; what pip prints goes to standard error.

    Returns:
        Seconds of processor time: what it would take one idle core, however busy the machine is.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(programs / "pip"), "install", "--disable-pip-version-check", f".[{extras}]"]
    subprocess.run(command, cwd=checkout, env=_environment(), stdout=sys.stderr, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _link_torch(programs: Path, folder: Path) -> None:
    """torch of this process with what it needs, as if it had been installed there."""
    linked = folder / "torch"
    linked.mkdir()
    for name, files in torch_and_needed().items():
        for top in files:
            (linked / top).symlink_to(Path(str(distribution(name).locate_file(top))).resolve())
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = [str(programs / "python"), "-c", code]
    site = subprocess.run(python, check=True, capture_output=True, text=True).stdout.strip()
    (Path(site) / "torch.pth").write_text(f"{linked}\n")


def torch_and_needed() -> dict[str, set[str]]:
    """Distributions by name, and the files and folders of each at the top of site-packages."""
    result: dict[str, set[str]] = {}
    waiting = ["torch"]
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(PackageNotFoundError):
            found = distribution(name)
            tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
            result[name] = {top for top in tops if not top.endswith(".pth")}
            needed = [text for text in found.requires or () if "extra ==" not in text]
            names = [re.split(r"[^\w.-]", text)[0].lower() for text in needed]
            waiting += [each for each in names if each not in result]
    return result


def _started(command: list[str], folder: Path, stderr: Path | None = None) -> subprocess.Popen[str]:
    """A process in a folder; standard output is a pipe unless there is a file for both."""
    with contextlib.ExitStack() as opened:
        log = opened.enter_context(stderr.open("wb")) if stderr is not None else None
        return subprocess.Popen(
            command,
            cwd=folder,
            env=_environment() | {"OTEL_STRAGGLER_RUN_ID": RUN_ID},
            stdout=log or subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def _environment() -> dict[str, str]:
    """Of a shell in which nothing of ours is set."""
    ours = ("OTEL_", "PYTHONPATH", "VIRTUAL_ENV", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


WAYS = {"without_torch": without_torch, "with_torch": with_torch}
BUDGETS_S = {"without_torch": MAX_DEMO_S, "with_torch": MAX_TRAINING_S}

if __name__ == "__main__":
    sys.exit(main())
