"""Variables that switch off, contradict or are misspelt."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import otel_straggler
from otel_straggler.config import all_variables
from otel_straggler.doctor.findings import Finding
from otel_straggler.otlp.clients import grpc as transport

Examine = Callable[..., dict[str, Finding]]
CLOSED = "http://127.0.0.1:1"


@pytest.mark.parametrize("name", ["OTEL_SDK_DISABLED", "OTEL_STRAGGLER_DISABLED"])
def test_a_switch_that_is_off_is_a_problem(examined: Examine, name: str) -> None:
    """Nothing would ever arrive."""
    finding = examined({name: "true"})["settings.disabled"]
    assert (finding.status, finding.remedy) == ("problem", f"unset {name}")


def test_signals_that_are_switched_off_are_told(examined: Examine) -> None:
    """Without spans no scores; without heartbeats no silence. Neither is asked for."""
    result = examined({"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"})
    assert result["settings.traces_off"].status == "problem"
    assert result["settings.metrics_off"].status == "warning"
    assert not [name for name in result if name.startswith("endpoint.")]


def test_a_misspelt_variable_is_told_with_the_right_one(examined: Examine) -> None:
    """Nobody else would tell."""
    finding = examined({"OTEL_STRAGGLER_ENDPIONT": "http://a:1"})["settings.unknown"]
    assert finding.status == "warning"
    assert 'export OTEL_STRAGGLER_ENDPOINT="$OTEL_STRAGGLER_ENDPIONT"' in finding.remedy
    finding = examined({"OTEL_STRAGGLER_QQQ": "1"})["settings.unknown"]
    assert finding.remedy == "unset OTEL_STRAGGLER_QQQ"


def test_a_folder_for_evidence_that_cannot_be_made_is_told(
    examined: Examine, tmp_path: Path
) -> None:
    """Before the hang of which nothing would be left; doctor itself makes none."""
    (tmp_path / "file").touch()
    below_a_file, new = str(tmp_path / "file" / "a"), str(tmp_path / "new" / "a")
    for name in ("EVIDENCE_DIR", "RING_DIR"):
        result = examined({f"OTEL_STRAGGLER_{name}": below_a_file})[f"settings.{name.lower()}"]
        assert result.status == "warning"
        assert below_a_file in result.sentence
        assert f"settings.{name.lower()}" not in examined({f"OTEL_STRAGGLER_{name}": new})
    assert not (tmp_path / "new").exists()


def test_commands_without_a_token_are_told(examined: Examine) -> None:
    """Nothing is asked for then, and only the log of the training says so."""
    env = {"OTEL_STRAGGLER_COMMANDS": "on"}
    assert "TOKEN" in examined(env)["settings.commands"].remedy
    reported = examined({**env, "OTEL_STRAGGLER_COMMANDS_TOKEN": "t"})
    assert "settings.commands" not in reported


def test_every_variable_that_is_read_is_known() -> None:
    """Also one that stands in a message only."""
    package = Path(otel_straggler.__file__).parent
    folders = ("client", "detector", "otlp", "report")
    files = [package / "native.py"]
    for file in files + [f for folder in folders for f in (package / folder).rglob("*.py")]:
        text = file.read_text(encoding="utf-8")
        assert set(re.findall(r"\bOTEL_STRAGGLER_[A-Z_]+[A-Z]\b", text)) <= {
            each.name for each in all_variables()
        }, file


def test_a_setting_that_configure_refuses_is_a_problem(examined: Examine) -> None:
    """In its own words, which end with what to do."""
    finding = examined({"OTEL_STRAGGLER_ENDPOINT": "grpc://a:1"})["settings.refused"]
    assert finding.status == "problem"
    assert "OTEL_STRAGGLER_ENDPOINT: got 'grpc://a:1'" in finding.sentence
    assert finding.remedy == "Use for example http://127.0.0.1:4318."


def test_a_rank_outside_of_its_world_is_a_problem(examined: Examine) -> None:
    """As configure() has it."""
    finding = examined({"RANK": "8", "WORLD_SIZE": "8"})["settings.refused"]
    assert "below the world size of 8" in finding.sentence


def test_a_variable_that_is_not_followed_is_a_warning(examined: Examine) -> None:
    """It would only be in the log of a rank."""
    finding = examined({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})["settings.ignored"]
    assert (finding.status, finding.remedy) == ("warning", "unset OTEL_EXPORTER_OTLP_PROTOCOL")


def test_grpc_asked_for_where_it_cannot_be_had_says_what_to_do(
    examined: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settle what is meant, or install it."""
    grpc = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    finding = examined(grpc, endpoint="http://127.0.0.1:4318")["settings.ignored"]
    assert finding.remedy == "export OTEL_STRAGGLER_PROTOCOL=http/protobuf"
    monkeypatch.setattr(transport, "find_spec", lambda name: None)
    finding = examined(grpc, endpoint=CLOSED)["settings.ignored"]
    assert finding.remedy == "pip install 'otel-straggler[grpc]'"


def test_it_is_said_which_variable_decided(examined: Examine) -> None:
    """Over the heads of others."""
    result = examined(
        {
            "OTEL_STRAGGLER_ENDPOINT": CLOSED,
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://b:1",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
            "OTEL_STRAGGLER_HEADERS": "authorization=secret",
            "OTEL_EXPORTER_OTLP_HEADERS": "x=y",
        }
    )
    traces, metrics = result["settings.traces"].value, result["settings.metrics"].value
    assert (traces["url"], traces["from"]) == (CLOSED, "OTEL_STRAGGLER_ENDPOINT")
    assert traces["protocol_from"] == "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
    assert (metrics["protocol"], metrics["protocol_from"]) == ("http/protobuf", "by default")
    assert traces["headers"] == ["authorization"]
    assert result["settings.headers"].status == "info"
    assert "secret" not in str(result)


@pytest.mark.parametrize(
    ("protocol", "port", "remedy"),
    [("grpc", 4318, "http/protobuf"), ("http/protobuf", 4317, "grpc")],
)
def test_a_protocol_on_the_port_of_the_other_is_a_warning(
    examined: Examine, protocol: str, port: int, remedy: str
) -> None:
    """The commonest of mistakes."""
    result = examined(endpoint=f"http://127.0.0.1:{port}", protocol=protocol)
    finding = result["settings.traces_port"]
    assert finding.status == "warning"
    assert finding.remedy.startswith(f"export OTEL_STRAGGLER_PROTOCOL={remedy}")


def test_a_path_that_is_there_already_is_a_problem(examined: Examine) -> None:
    """It would be there twice."""
    result = examined({"OTEL_STRAGGLER_ENDPOINT": f"{CLOSED}/v1/traces"})
    assert result["settings.traces_path"].status == "problem"
    assert result["settings.traces_path"].remedy == f"export OTEL_STRAGGLER_ENDPOINT={CLOSED}"


def test_a_signals_own_endpoint_without_a_path_is_a_warning(examined: Examine) -> None:
    """OpenTelemetry uses it as it is."""
    name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    finding = examined({name: CLOSED})["settings.traces_path"]
    assert (finding.status, finding.remedy) == ("warning", f"export {name}={CLOSED}/v1/traces")


def test_an_endpoint_on_loopback_for_several_nodes_is_a_warning(examined: Examine) -> None:
    """Each node would ask itself."""
    nodes = {"RANK": "0", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}
    assert examined(nodes)["settings.loopback"].status == "warning"
    assert "settings.loopback" not in examined({**nodes, "WORLD_SIZE": "8"})


def test_nobody_naming_an_endpoint_is_told(examined: Examine) -> None:
    """With the variable that would."""
    finding = examined()["settings.endpoint"]
    assert finding.status == "info"
    assert "OTEL_STRAGGLER_ENDPOINT=" in finding.remedy
