"""Kubernetes, Helm, container, compose and systemd: what is handed out is valid, and closed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from kubernetes_manifests import CHART, NAMESPACE, rendered, with_values
from kubernetes_manifests import values as chart_values

from otel_straggler.cli.group import otel_straggler
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.collector.settings_file import check_start, load_settings
from otel_straggler.supervisor.settings import load_settings as load_supervisor

ROOT = Path(__file__).parents[2]
PLATFORMS = ROOT / "examples" / "platforms"
PORTS = {4318, 4317, 9464}
MONITORING = PLATFORMS / "kubernetes" / "monitoring.yaml"
MANIFESTS = sorted({*(PLATFORMS / "kubernetes").glob("*.yaml")} - {MONITORING})
KUBERNETES = ("1.25", "1.37")
"""The oldest that the chart says it supports, and the newest that the package knows."""


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def of_kind(kind: str, file: str = "collector.yaml") -> dict[str, Any]:
    (document,) = (d for d in documents(PLATFORMS / "kubernetes" / file) if d["kind"] == kind)
    return document


def settings_of(text: str, folder: Path) -> CollectorSettings:
    """As the collector reads them, with a file of grants in the place of the one named."""
    grants = folder / "grants"
    grants.write_text("ingest team token:0123456789abcdef\nread people token:fedcba9876543210\n")
    named = yaml.safe_load(text)["auth"]["grant_files"][0]
    config = folder / "collector.yaml"
    config.write_text(text.replace(named, str(grants)))
    settings = load_settings(config, {})
    check_start(settings)
    return settings


@pytest.fixture
def config_of() -> dict[str, str]:
    """The text of each collector's settings by its platform."""
    return {
        "kubernetes": of_kind("ConfigMap")["data"]["collector.yaml"],
        "systemd": (PLATFORMS / "systemd" / "collector.yaml").read_text(),
        "compose": (PLATFORMS / "compose" / "collector.yaml").read_text(),
    }


@pytest.mark.parametrize("platform", ["kubernetes", "systemd", "compose"])
def test_the_settings_are_accepted_and_want_a_token(
    platform: str, config_of: dict[str, str], tmp_path: Path
) -> None:
    """They listen on the network at the usual ports, never without grants."""
    settings = settings_of(config_of[platform], tmp_path)
    assert settings.auth.is_on
    assert not settings.auth.insecure
    receivers = settings.receivers
    addresses = (receivers.otlp_http, receivers.otlp_grpc, settings.metrics.listen)
    assert addresses == ("0.0.0.0:4318", "0.0.0.0:4317", "0.0.0.0:9464")
    assert settings.history.path == "/var/lib/otel-straggler/history.db"


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_kubernetes_accepts_the_manifests(file: Path, version: str) -> None:
    """Strictly: a field that it does not know is an error."""
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate",
        reason="kubernetes-validate is not installed: "
        "it would show that Kubernetes accepts the manifests",
    )
    for document in documents(file):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_every_pod_runs_as_a_user_without_rights(file: Path) -> None:
    """It fits the `restricted` pod security standard."""
    pods = [
        d["spec"]["template"]["spec"] for d in documents(file) if "template" in d.get("spec", {})
    ]
    assert len(pods) == 1
    for pod in pods:
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_collectors_pod_writes_and_reaches_nothing_but_what_it_needs() -> None:
    """A read-only file system, limits of memory and disk, no token of the cluster, no names of
    other services, and a network that is closed both ways but for its ports."""
    spec = of_kind("StatefulSet")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["resources"]["limits"].keys() >= {"memory", "ephemeral-storage"}
    assert container["resources"]["requests"].keys() >= {"memory", "cpu"}
    assert spec["enableServiceLinks"] is False
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["tmp"]["emptyDir"]["sizeLimit"]
    assert volumes["grants"]["secret"]["defaultMode"] & 0o007 == 0
    assert not any("hostPath" in volume for volume in volumes.values())
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert all(mounts[name]["readOnly"] for name in ("config", "grants"))
    policy = of_kind("NetworkPolicy")["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert policy["egress"] == []
    assert all(rule["from"] and rule["ports"] for rule in policy["ingress"])


def test_the_parts_of_the_manifest_fit_each_other(config_of: dict[str, str]) -> None:
    """Ports, names, probes and paths."""
    pod = of_kind("StatefulSet")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert set(ports.values()) == PORTS
    assert {p["targetPort"]: p["port"] for p in of_kind("Service")["spec"]["ports"]} == ports
    named = {
        p["port"] for rule in of_kind("NetworkPolicy")["spec"]["ingress"] for p in rule["ports"]
    }
    assert named == set(ports)
    assert of_kind("Service")["spec"]["selector"] == pod["metadata"]["labels"]
    check_command(container["args"])
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    config = re.sub(r"#.*", "", config_of["kubernetes"])
    paths = re.findall(r"/(?:etc|var)/[\w/.-]+", config + " ".join(container["args"]))
    assert len(paths) == 4
    for path in paths:
        assert any(path.startswith(mount) for mount in mounts), path
    env = {e["name"]: e for e in of_kind("Job", "training-job.yaml")["spec"]["template"]["spec"][
        "containers"][0]["env"]}  # fmt: skip
    service = f"http://{of_kind('Service')['metadata']['name']}.{NAMESPACE}.svc:4318"
    assert env["OTEL_STRAGGLER_ENDPOINT"]["value"] == service


def test_the_chart_uses_every_value_and_no_more_of_helm_than_values() -> None:
    """So that putting values in place is all that rendering does."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    templates = "".join(file.read_text() for file in (CHART / "templates").glob("*.yaml"))
    used = set(re.findall(r"\{\{(.*?)\}\}", templates))
    conditions = {"prometheusOperator", "grafanaDashboards"}
    files = {
        word for word in used if re.fullmatch(r' \.Files\.Get "files/[\w.-]+" \| indent \d ', word)
    }
    guards = {f"- if .Values.{name} " for name in conditions} | {"- end "}
    in_place = {f" .Values.{name} " for name in values.keys() - conditions}
    assert used == in_place | {" .Release.Namespace "} | files | guards
    assert {name.split('"')[1] for name in files} == {
        f"files/{file.name}" for file in (CHART / "files").iterdir()
    }
    with pytest.raises(KeyError):
        with_values("{{ .Values.other }}", {})
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["apiVersion"], chart["name"]) == ("v2", CHART.name)


@pytest.mark.parametrize("monitored", [False, True])
def test_helm_renders_the_chart_as_the_manifest(monitored: bool) -> None:
    """Object by object."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip(
            "no helm here (https://helm.sh/docs/intro/install): "
            "it would show that it renders what the manifest has"
        )
    chosen = ["--set", f"prometheusOperator={str(monitored).lower()}"]
    command = [helm, "template", "--namespace", NAMESPACE, *chosen, "straggler", str(CHART)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    rendered = {d["kind"]: d for d in yaml.safe_load_all(done.stdout)}
    plain = documents(PLATFORMS / "kubernetes" / "collector.yaml")
    plain += documents(MONITORING) if monitored else []
    assert rendered == {document["kind"]: document for document in plain}


# --- a Prometheus operator and Grafana ------------------------------------------------------------


def test_without_an_operator_there_is_nothing_that_only_it_knows() -> None:
    """By default: a cluster without its kinds would refuse the whole chart."""
    kinds = {yaml.safe_load(text)["kind"] for text in rendered(chart_values())}
    assert kinds == {"ConfigMap", "NetworkPolicy", "Service", "StatefulSet"}


def test_the_operator_scrapes_the_service_with_a_token_that_has_a_grant() -> None:
    """By the labels, the port and the namespace of the service; labels of runs are kept."""
    (monitor,) = (d for d in documents(MONITORING) if d["kind"] == "ServiceMonitor")
    service = of_kind("Service")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["honorLabels"] is True
    assert endpoint["authorization"]["credentials"] == {
        "name": chart_values()["readerSecret"],
        "key": "token",
    }
    page = (ROOT / "docs" / "operate" / "kubernetes.md").read_text()
    assert "secret generic otel-straggler-reader --from-file=token=prometheus.token" in page
    assert "read    prometheus" in page
    release = chart_values()["prometheusRelease"]
    assert all(d["metadata"]["labels"]["release"] == release for d in documents(MONITORING))


def test_the_operator_gets_the_rules_that_are_handed_out(tmp_path: Path) -> None:
    """All of them, as promtool reads them."""
    (rules,) = (d for d in documents(MONITORING) if d["kind"] == "PrometheusRule")
    handed_out = yaml.safe_load((ROOT / "alerts" / "otel-straggler-rules.yaml").read_text())
    assert rules["spec"] == handed_out
    promtool = shutil.which("promtool")
    if promtool is not None:
        file = tmp_path / "rules.yaml"
        file.write_text(yaml.safe_dump(rules["spec"]))
        checked = subprocess.run([promtool, "check", "rules", str(file)], check=False, timeout=60)
        assert checked.returncode == 0


def test_grafanas_sidecar_gets_every_dashboard_in_a_map_that_kubectl_takes() -> None:
    """One each: `kubectl apply` keeps a copy in an annotation, of 256 KiB at most."""
    made = {**chart_values(), "grafanaDashboards": True}
    (text,) = (each for each in rendered(made) if "grafana_dashboard" in each)
    maps = list(yaml.safe_load_all(text))
    pages = {f"otel-straggler-{file.name}": file for file in (ROOT / "dashboards").glob("*.json")}
    given = {name: content for each in maps for name, content in each["data"].items()}
    assert given.keys() == pages.keys()
    for name, content in given.items():
        assert json.loads(content) == json.loads(pages[name].read_text(encoding="utf-8"))
        assert len(content) < 200 * 1024
    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in maps)


CONTAINERFILE = (PLATFORMS / "container" / "Containerfile").read_text()


def instructions(name: str) -> list[str]:
    joined = CONTAINERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} (.+)$", joined, re.MULTILINE)


def test_all_that_the_image_copies_exists() -> None:
    """And it is all that a build of the package reads."""
    copied = [
        source
        for line in instructions("COPY")
        if not line.startswith("--from")
        for source in line.split()[:-1]
    ]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    package = ROOT / "otel_straggler"
    links = {
        path.resolve().relative_to(ROOT).parts[0]
        for path in package.rglob("*")
        if path.is_symlink()
    }
    assert {"pyproject.toml", "MANIFEST.in", "README.md", "cuda_ext", *links} <= set(copied)


def test_the_image_runs_the_collector_as_a_user_without_a_name() -> None:
    """By a command line that our parser accepts, at the ports that it exposes."""
    (entry,), (arguments,) = instructions("ENTRYPOINT"), instructions("CMD")
    assert json.loads(entry) == ["otel-straggler"]
    check_command(json.loads(arguments))
    (user,) = instructions("USER")
    assert user == "10001:10001"
    assert {int(port) for line in instructions("EXPOSE") for port in line.split()} == PORTS


COMPOSE = PLATFORMS / "compose"


@pytest.mark.parametrize(("name", "ports"), [("collector", PORTS), ("supervisor", {9470})])
def test_a_composed_service_is_on_loopback_and_may_do_nothing_else(
    name: str, ports: set[int]
) -> None:
    """It reads what it names, as the user of the image, within limits."""
    composed = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    service = composed["services"][name]
    assert set(service["ports"]) == {f"127.0.0.1:{port}:{port}" for port in ports}
    assert (service["user"], service["read_only"]) == ("10001:10001", True)
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert all("noexec" in mount and "size=" in mount for mount in service["tmpfs"])
    assert service.keys() >= {"mem_limit", "cpus", "pids_limit"}
    assert not service.keys() & {"privileged", "network_mode", "pid", "cap_add", "devices"}
    for volume in service["volumes"]:
        source, _, target = volume.partition(":")
        assert source in composed["volumes"] or (COMPOSE / source).exists()
        assert source in composed["volumes"] or target.endswith(":ro")
    settings = yaml.safe_load((COMPOSE / f"{name}.yaml").read_text())
    assert settings["auth"]["grant_files"] == [
        f"/run/secrets/{name}" for name in service["secrets"]
    ]


def test_the_composed_image_is_built_from_the_checkout_and_its_supervisor_is_started_by_name() -> (
    None
):
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    build = services["collector"]["build"]
    root = COMPOSE / build["context"]
    assert (root / build["dockerfile"]).resolve() == PLATFORMS / "container" / "Containerfile"
    assert services["supervisor"]["profiles"] == ["supervisor"]
    check_command(services["supervisor"]["command"])


def test_a_supervisor_that_is_handed_out_only_says_what_it_would_do(tmp_path: Path) -> None:
    """And none is open to a network without grants."""
    for file in (COMPOSE / "supervisor.yaml", ROOT / "examples" / "supervisor.yaml"):
        text = file.read_text()
        grants = tmp_path / "grants"
        grants.write_text("ingest team token:0123456789abcdef\n")
        config = tmp_path / file.name
        config.write_text(text.replace("/run/secrets/grants", str(grants)))
        settings = load_supervisor(config)
        assert settings.executor.kind == "print"
        is_local = settings.server.listen.startswith("127.")
        assert is_local or settings.auth.is_on
        assert settings.policy.max_fleet_share <= 0.1


HANDED_OUT = sorted(
    path
    for path in PLATFORMS.rglob("*")
    if path.suffix in (".yaml", ".sbatch", ".service") and path.is_file()
    and "files" not in path.parts and path != MONITORING
)  # fmt: skip


@pytest.mark.parametrize("file", HANDED_OUT, ids=lambda file: str(file.relative_to(PLATFORMS)))
def test_nothing_that_is_handed_out_is_open_or_has_a_secret(file: Path) -> None:
    """Who listens on the network has grants, and TLS or a sentence why not; tokens are in files."""
    text = file.read_text()
    assert "insecure" not in text
    assert not re.search(r"token:[A-Za-z0-9]{16}|password[:=]|Bearer [A-Za-z0-9]", text)
    listens = "0.0.0.0" in text or "$listen:" in text
    if listens:
        assert "grant_files" in text
        is_of_supervisor = "executor:" in text
        assert is_of_supervisor or re.search(r"^ *#? *tls:|[Nn]o TLS", text, re.MULTILINE)
    writes_tokens = re.search(r">\s*\"\S*\.token\"", text)
    assert not writes_tokens or "umask 077" in text


def test_each_team_has_a_grant_with_its_runs_and_limits() -> None:
    """Where the documentation of a platform has grants, and the run's name is one of these."""
    for page in ("services.md", "kubernetes.md"):
        text = (ROOT / "docs" / "operate" / page).read_text()
        [grant] = re.findall(r'"ingest +\S+ +sha256:\S+ ingest\)\s+(.*?)"', text)
        limits = dict(each.split("=") for each in grant.split())
        assert limits.keys() == {"runs", "max_runs", "max_ranks"}
        assert limits["runs"].endswith("/")
        example = PLATFORMS / "kubernetes" / "training-job.yaml"
        names = text if page == "services.md" else example.read_text()
        assert re.search(rf"OTEL_STRAGGLER_RUN_ID(=|.*\n +value: ){limits['runs']}", names), page


UNIT = PLATFORMS / "systemd" / "otel-straggler.service"


def test_systemd_accepts_the_unit_and_calls_it_well_confined(tmp_path: Path) -> None:
    """With the program of this environment in the place of the installed one."""
    analyze = shutil.which("systemd-analyze")
    program = shutil.which("true")
    if analyze is None or program is None:
        pytest.skip(
            "no systemd-analyze here (apt install systemd): "
            "it would show that systemd accepts the unit"
        )
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/otel-straggler/bin/otel-straggler", program))
    verified = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    mine = [line for line in verified.stderr.splitlines() if UNIT.name in line]
    assert (verified.returncode, mine) == (0, [])
    exposure = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=25", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert exposure.returncode == 0, exposure.stdout


def test_the_unit_starts_what_it_has_checked() -> None:
    """By command lines that our parser accepts; its settings read the grants that it passes on."""
    text = UNIT.read_text()
    lines = re.findall(
        r"^ExecStart(?:Pre)?=/opt/otel-straggler/bin/otel-straggler (.+)$", text, re.MULTILINE
    )
    check, start = (line.split() for line in lines)
    check_command(start)
    assert check == [*start, "--check"]
    (credential,) = re.findall(r"^LoadCredential=(\w+):", text, re.MULTILINE)
    settings = yaml.safe_load((UNIT.parent / "collector.yaml").read_text())
    assert settings["auth"]["grant_files"] == [f"/run/credentials/{UNIT.name}/{credential}"]
    assert "DynamicUser=yes" in text


def check_command(words: list[str]) -> None:
    """As our parser reads it; nothing is run."""
    with click.Context(otel_straggler) as context:
        command = otel_straggler.get_command(context, words[0])
        assert command is not None
        command.make_context(words[0], words[1:], parent=context)
