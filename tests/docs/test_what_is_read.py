"""Everything that is read from outside is bounded: a reader that is not is listed here with a
reason, and a new one is a red test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import otel_straggler

PACKAGE = Path(otel_straggler.__file__).parent
JSON = {"json.loads", "json.load", "json.JSONDecoder", "yaml.load", "yaml.safe_load"}
FILES = {"open", "os.open", "io.open"}
METHODS = {"read_text", "read_bytes"}
DIGITS = {"isdigit", "isdecimal", "isnumeric"}
REASONS: dict[str, list[str]] = {
    "the reader that all others use": [
        "checkpoint/files:_open_to_write Path.open",
        "checkpoint/files:open_to_read Path.open",
        "checkpoint/files:read_small_file Path.open",
        "regular_files:open_regular os.open",
        "regular_files:sync_folder os.open",
        "strict_json:parse_json json.loads",
        "strict_json:whole_number isdecimal",
        "yaml_file:_load_yaml yaml.load",
    ],
    "a file of this package, or of torch's": [
        "alerts/render: read_text",
        "alerts/render:chapter read_text",
        "page/__init__:_read read_bytes",
        "page/bundle:bundle read_text",
        "torch_parts:read read_bytes",
    ],
    "the kernel's, under /proc and /sys, or /dev/null": [
        "cli/__init__:_discard_output os.open",
        "cli/hang_targets:check_rank read_bytes",
        "client/diagnostics/processes:_number_of read_text",
        "client/diagnostics/processes:_stat read_text",
        "client/diagnostics/processes:_status_field read_text",
        "client/diagnostics/processes:describe_state read_text",
        "client/diagnostics/processes:pid_scope read_text",
        "client/gpu/overhead:cpu_of_thread_s read_text",
        "client/host:finds_dcgm read_text",
        "client/host:memory_pressure read_text",
        "client/identity:_start_of_parent read_text",
        "collector/metrics/process:_booted_at_s read_text",
        "collector/metrics/process:process_families read_text",
        "doctor/recording:driver_version isdigit",
        "doctor/recording:driver_version read_text",
        "inject/effects:_available_bytes read_text",
        "inject/host_effects:_is_up read_text",
    ],
    "this process, or its parent, has made it a moment before": [
        "client/diagnostics/flight_recorder:_read json.loads",
        "collector/views/pages:first json.loads",
        "inject/keeper: json.loads",
        "launcher/elastic:main json.loads",
        "profiles/artifacts:_write_list Path.open",
        "profiles/artifacts:artifact_of Path.open",
    ],
    "the demo's own processes": [
        "demo/demo:_wait_for_step json.load",
        "demo/processes:__init__ Path.open",
        "demo/processes:_read_ready_line json.loads",
        "demo/processes:log read_text",
        "demo/receiver:do_POST json.loads",
        "demo/training:__init__ Path.open",
        "demo/training:log read_text",
    ],
    "written there, not read": [
        "cli/simulate:_opened Path.open",
        "inject/effects:_filled Path.open",
        "inject/host_effects:xid Path.open",
    ],
    "ranks of one training, which run the same code": [
        "checkpoint/plain:decode json.loads",
        "integrations/trainer_saves:load_state_dict json.loads",
        "report/columns:learn json.loads",
    ],
    "rows that this service has written, in a file of mode 0600": [
        "collector/history/codec:_unpacked json.loads",
        "collector/history/codec:read_verdict json.loads",
        "detect/scores/scorer:restore json.loads",
        "detect/scores/scorer:restore_open json.loads",
        "supervisor/store:_entry json.loads",
        "supervisor/store:fleet json.loads",
        "supervisor/store:steps json.loads",
        "supervisor/store:meta json.loads",
    ],
    "bounded before, and every error of the parser is one of the reader": [
        "agent/frames:_message json.loads",
        "checkpoint/streams:_asked json.loads",
        "goodput/job_events: json.JSONDecoder",
        "otlp/decode_json:_loads json.loads",
        "recordings/diagnostics_files:_decoded json.loads",
    ],
    "a recording, line by line; the command was given its name": [
        "recordings/files:open_input Path.open",
        "recordings/otlp:_pretty_documents json.JSONDecoder",
        "recordings/otlp:documents json.loads",
        "recordings/trace_events: json.JSONDecoder",
    ],
    "few digits: its length is checked alongside, or it is not made a number": [
        "collector/api/commands:_key isdecimal",
        "collector/api/pages:whole isdecimal",
        "collector/history/spool:_number isdecimal",
        "doctor/identity:check_numbers isdigit",
        "launcher/launch:_end_s isdecimal",
        "otlp/identity:as_int isdigit",
        "recordings/columns:whole_number isdigit",
        "recordings/diagnostics_files:read_stacks_folder isdecimal",
        "supervisor/executors/slurm:_job isdecimal",
    ],
    "no file: a method of ours of that name": [
        "otlp/decode_metrics:_sender read_bytes",
        "otlp/decode_spans:_teach_sender read_bytes",
        "otlp/slices:of read_bytes",
        "otlp/slices:source_of read_bytes",
    ],
}
FINE = {one: reason for reason, ones in REASONS.items() for one in ones}


def readers_in(path: Path) -> Iterator[str]:
    """``module:function what`` of each reader that knows no limit."""
    module = path.relative_to(PACKAGE).with_suffix("").as_posix()

    def visit(node: ast.AST, function: str) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and (what := reader(node)):
            yield f"{module}:{function} {what}"
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function)

    yield from visit(ast.parse(path.read_text("utf-8")), "")


def reader(call: ast.Call) -> str:
    """The name of the reader, empty if it is none."""
    name = ast.unparse(call.func)
    method = name.rpartition(".")[2]
    if name in JSON | FILES:
        return name
    if isinstance(call.func, ast.Attribute) and method in METHODS | DIGITS:
        return method
    is_path = isinstance(call.func, ast.Attribute) and method == "open"
    mode = call.args[0] if call.args else None
    has_mode = (
        isinstance(mode, ast.Constant) and isinstance(mode.value, str) and len(mode.value) < 4
    )
    has_mode |= any(each.arg in {"encoding", "newline"} for each in call.keywords)
    return "Path.open" if is_path and has_mode else ""


def test_what_is_read_without_a_limit_is_listed_with_its_reason() -> None:
    found = {one for path in sorted(PACKAGE.rglob("*.py")) for one in readers_in(path)}
    assert sorted(found - FINE.keys()) == [], "use regular_files, strict_json, or say why not"
    assert sorted(FINE.keys() - found) == [], "no longer there"
