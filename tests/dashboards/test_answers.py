"""What panels answer to series that are made up, evaluated by Prometheus' own engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from otel_straggler import semconv
from otel_straggler.alerts.rule import OVER

from .conftest import FOLDER, filled

OF_RUN = 'job_name="j",run_id="{run_id}",group="",collector="c"'
SUBJECT = f'{OF_RUN},subject_id="rank/n/0",scope="rank",rank="0",node="n",role="",section="f"'
STATES = ("training", "stuck", "lost", *OVER)


def expression(page: str, panel: int, ref: str = "A") -> str:
    """With everything chosen."""
    reported = json.loads((FOLDER / f"{page}.json").read_text(encoding="utf-8"))
    [target] = [
        target
        for each in reported["panels"]
        if each["id"] == panel
        for target in each.get("targets", ())
        if target["refId"] == ref
    ]
    return filled(target["expr"]).replace("=~`x`", "=~`.*`")


def evaluated(
    text: str, series: dict[str, str], at: str, wanted: dict[str, float], folder: Path
) -> None:
    """Fails with promtool's words if the expression gives anything else."""
    promtool = shutil.which("promtool")
    if promtool is None:
        sentence = "promtool is not installed (make servers): no panel was evaluated"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    test = {
        "rule_files": [],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": k, "values": v} for k, v in series.items()],
                "promql_expr_test": [
                    {
                        "expr": text,
                        "eval_time": at,
                        "exp_samples": [{"labels": k, "value": v} for k, v in wanted.items()],
                    }
                ],
            }
        ],
    }
    file = folder / "test.yaml"
    file.write_text(json.dumps(test))
    ran = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("state", [*STATES, ""])
def test_who_was_slow_when_its_run_ended_is_no_current_culprit(state: str, tmp_path: Path) -> None:
    """Also where its last series are still known, behind a federation or a collector that went. A
    run without heartbeats has no state; it is not over."""
    run = OF_RUN.format(run_id="r")
    lost, of = semconv.VERDICT_LOSS.prometheus_name, semconv.RUN_STATE.prometheus_name
    series = {f"{lost}{{{SUBJECT.format(run_id='r')}}}": "3+0x40"}
    for each in STATES if state else ():
        series[f'{of}{{{run},state="{each}"}}'] = f"{int(each == state)}+0x40"
    subject = 'subject_id="rank/n/0",scope="rank",rank="0",node="n",section="f"'
    labels = f'{{job_name="j",run_id="r",{subject}}}'
    is_live = state not in OVER
    evaluated(expression("fleet", 7), series, "5m", {labels: 3.0} if is_live else {}, tmp_path)


def test_time_that_turns_out_to_be_useful_is_no_new_loss(tmp_path: Path) -> None:
    """Lost time is a gauge: it falls when its category is corrected, and grows at its own rate."""
    run = OF_RUN.format(run_id="r")
    name = semconv.RUN_LOST.prometheus_name
    falling = {f'{name}{{{run},reason="hang"}}': "1000-15x40"}
    growing = {f'{name}{{{run},reason="eval"}}': "0+3x40"}
    series = {**falling, **growing}
    wanted = {'{reason="hang"}': 0.0, '{reason="eval"}': 0.2}
    evaluated(expression("fleet", 8), series, "9m", wanted, tmp_path)
