"""Settings: the example file is the defaults; whatever is wrong is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_straggler.collector.settings import CollectorSettings, ForwardSettings, LivenessSettings
from otel_straggler.collector.settings_file import flag_of, flag_rows, load_settings
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.errors import ConfigError
from otel_straggler.semconv import RANK_ALIASES, STEP_ALIASES
from otel_straggler.setting import rows_of, sections_of

EXAMPLE = Path(__file__).parents[2] / "docs" / "collector.yaml"


def test_the_example_file_has_every_setting_with_its_default() -> None:
    """It can be copied and changed line by line."""
    import yaml

    assert load_settings(EXAMPLE, {}) == CollectorSettings()
    document = yaml.safe_load(EXAMPLE.read_text())
    sections = sections_of(CollectorSettings)
    expected = {name: {*rows_of(kind), *sections_of(kind)} for name, kind in sections.items()}
    assert {name: set(values) for name, values in document.items()} == expected


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    """And the file over the defaults."""
    file = tmp_path / "c.yaml"
    file.write_text("scoring: {window_steps: 7, window_seconds: 3}\nmetrics:\n")
    settings = load_settings(file, {"scoring.window_steps": 9, "receivers.otlp_http": None})
    assert settings.scoring.window_steps == 9
    assert settings.scoring.window_s == 3.0
    assert settings.receivers == CollectorSettings().receivers


def test_attributes_and_patterns_reach_the_decoder(tmp_path: Path) -> None:
    """Keys are added to the built-in ones, patterns replace the defaults."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "attributes: {rank: [mpi.rank]}\nspans: {exclude: [life.*], wait: ['*.sync']}\n"
    )
    settings = load_settings(file, {})
    assert settings.attributes.aliases().rank == ("mpi.rank", *RANK_ALIASES)
    assert settings.attributes.aliases().step == STEP_ALIASES
    names = settings.spans.names()
    result = {name: (names.is_scored(name), names.kind_of(name)) for name in ("life.x", "a.sync")}
    assert result == {"life.x": (False, "compute"), "a.sync": (True, "wait")}
    assert names.is_scored("pytorch.rank")


def test_verdicts_in_the_file_are_the_settings_of_layer_2(tmp_path: Path) -> None:
    """The same defaults, under the same names but for units; a list of numbers may be given."""
    assert CollectorSettings().verdicts == VerdictSettings()
    file = tmp_path / "c.yaml"
    file.write_text("verdicts: {block_seconds: 5, windows_steps: [10, 40], page_loss: 0}\n")
    expected = VerdictSettings(block_s=5.0, windows_steps=(10, 40), page_loss=0.0)
    assert load_settings(file, {}).verdicts == expected


def test_liveness_in_the_file_is_what_the_hang_judge_goes_by(tmp_path: Path) -> None:
    """The same defaults, under the same names but for units."""
    file = tmp_path / "c.yaml"
    file.write_text("liveness: {lost_after_seconds: 3, min_timeout_seconds: 1.5}\n")
    expected = LivenessSettings(lost_after_s=3.0, min_timeout_s=1.5)
    assert load_settings(file, {}).liveness == expected


def test_a_url_alone_turns_forwarding_on() -> None:
    """``mode: off`` turns it off again."""
    on = load_settings(None, {"forward.url": "http://gateway:4318"})
    assert on.forward.is_on
    assert not CollectorSettings().forward.is_on


def test_mode_off_is_off_though_yaml_calls_it_false(tmp_path: Path) -> None:
    """YAML 1.1 reads a bare off as a boolean."""
    file = tmp_path / "c.yaml"
    file.write_text("forward:\n  url: http://gateway:4318\n  mode: off\n")
    assert not load_settings(file, {}).forward.is_on


def test_a_mode_that_forwards_needs_somebody_to_forward_to(tmp_path: Path) -> None:
    """Not silently off: the error says what to add."""
    file = tmp_path / "c.yaml"
    file.write_text("forward:\n  mode: sampled\n")
    for path, flags, where in (
        (file, {}, "c.yaml: forward.mode"),
        (None, {"forward.mode": "all"}, "--forward-mode"),
    ):
        with pytest.raises(ConfigError, match=f"{where}.*expected a URL.*--forward URL"):
            load_settings(path, flags)


def test_the_rules_of_sampling_are_those_of_the_file(tmp_path: Path) -> None:
    """Every setting of mode sampled reaches the sampler."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "forward:\n  url: http://gateway:4318\n  mode: sampled\n  sample_every: 7\n"
        "  slow_step_ratio: 2\n  max_trace_spans: 50\n  max_held_bytes: 2000000\n"
        "  hold_seconds: 9\n"
    )
    settings = load_settings(file, {}).forward
    assert settings.is_sampled
    assert settings == ForwardSettings(
        url="http://gateway:4318",
        mode="sampled",
        sample_every=7,
        slow_step_ratio=2.0,
        max_trace_spans=50,
        max_held_bytes=2_000_000,
        hold_seconds=9.0,
    )


WRONG = {
    "no trace at all": ("forward:\n  sample_every: 0\n", ["sample_every", "at least 1"]),
    "every step is slow": ("forward:\n  slow_step_ratio: 1.0\n", ["slow_step_ratio", "above 1"]),
    "no spans of a trace": ("forward:\n  max_trace_spans: 0\n", ["max_trace_spans", "at least 4"]),
    "nothing held": ("forward:\n  max_held_bytes: 5\n", ["max_held_bytes", "1048576"]),
    "no time": ("forward:\n  hold_seconds: 0\n", ["hold_seconds", "above 0"]),
    "unknown key": ("scoring:\n  window_step: 5\n", ["scoring", "window_step", "window_steps"]),
    "unknown part": ("score:\n  a: 5\n", ["score", "scoring"]),
    "wrong type": (
        "scoring:\n  window_steps: many\n",
        ["scoring.window_steps", "'many'", "integer"],
    ),
    "a boolean is no number": ("scoring:\n  window_steps: true\n", ["window_steps", "True"]),
    "out of range": ("scoring:\n  threshold: 1.5\n", ["scoring.threshold", "1.5", "at most 1"]),
    "not a number": ("scoring:\n  grace_seconds: .nan\n", ["scoring.grace_seconds", "nan"]),
    "no port": ("receivers:\n  otlp_http: localhost\n", ["otlp_http", "localhost", "HOST:PORT"]),
    "not a list": ("metrics:\n  allowed_hosts: a\n", ["allowed_hosts", "list"]),
    "not a mapping": ("scoring: 5\n", ["scoring", "5", "mapping"]),
    "a list": ("- 5\n", ["c.yaml", "mapping"]),
    "url of a signal": (
        "forward:\n  url: http://gateway:4318/v1/traces/\n",
        ["forward.url", "http://gateway:4318/v1/traces/", "can be added"],
    ),
    "no url": ("forward:\n  url: gateway:4318\n", ["forward.url", "gateway:4318", "http://"]),
    "no list of keys": (
        "attributes:\n  rank: mpi.rank\n",
        ["attributes.rank", "list of attribute"],
    ),
    "an empty key": ("attributes:\n  step: ['']\n", ["attributes.step", "without blanks"]),
    "a key that is no text": ("attributes:\n  run_id: [5]\n", ["attributes.run_id", "[5]"]),
    "unknown attribute": ("attributes:\n  node: [a]\n", ["attributes", "node", "local_rank"]),
    "no pattern": ("spans:\n  exclude: [' a']\n", ["spans.exclude", "' a'", "patterns"]),
    "unknown kind": ("spans:\n  compute: [a]\n", ["spans", "compute", "checkpoint"]),
    "unknown mode": ("forward:\n  mode: some\n", ["forward.mode", "some", "all"]),
    "no list of numbers": (
        "verdicts:\n  windows_steps: 20\n",
        ["windows_steps", "20", "ascending"],
    ),
    "text in a list of numbers": ("verdicts:\n  windows_steps: [a]\n", ["windows_steps", "['a']"]),
    "numbers that fall": ("verdicts:\n  windows_steps: [20, 5]\n", ["windows_steps", "[20, 5]"]),
    "blocks longer than every window": (
        "verdicts:\n  block_steps: 500\n",
        ["verdicts.block_steps", "500", "at most 400", "verdicts.windows_steps"],
    ),
    "a faster straggler": ("verdicts:\n  page_slowdown: 0.9\n", ["page_slowdown", "at least 1"]),
    "no such mode of alerts": ("alerts:\n  mode: on\n", ["alerts.mode", "True", "observe"]),
    "another mode of alerts": ("alerts:\n  mode: sampled\n", ["alerts.mode", "sampled", "page"]),
    "a threshold of alerts": (
        "alerts:\n  relative_threshold: 75\n",
        ["alerts.relative_threshold", "75", "at most 1"],
    ),
    "an unknown threshold": ("alerts:\n  treshold: 1\n", ["alerts", "treshold", "gpu_threshold"]),
    "whom to notify": ("alerts:\n  notify: http://a\n", ["alerts.notify", "mapping"]),
    "an unknown receiver": (
        "alerts:\n  notify:\n    pager: x\n",
        ["alerts.notify", "pager", "webhook"],
    ),
    "two ways at once": (
        "alerts:\n  notify: {alertmanagers: ['http://a'], webhook: 'http://b'}\n",
        ["alerts.notify.webhook", "http://b", "called twice"],
    ),
    "a password in a URL": (
        "alerts:\n  notify: {webhook: 'http://me:secret@b'}\n",
        ["alerts.notify.webhook", "without a name or password"],
    ),
    "an Alertmanager without a scheme": (
        "alerts:\n  notify: {alertmanagers: ['am:9093']}\n",
        ["alerts.notify.alertmanagers", "am:9093", "http://"],
    ),
    "an Alertmanager named twice": (
        "alerts:\n  notify: {alertmanagers: ['http://a', 'http://a']}\n",
        ["alerts.notify.alertmanagers"],
    ),
    "a severity": (
        "alerts:\n  notify: {min_severity: fatal}\n",
        ["alerts.notify.min_severity", "fatal", "critical"],
    ),
    "a token that is not there": (
        "alerts:\n  notify: {token_file: /none}\n",
        ["alerts.notify.token_file", "/none", "can read"],
    ),
    "a key without a certificate": (
        "alerts:\n  notify: {key_file: /none}\n",
        ["alerts.notify.key_file", "cert_file"],
    ),
    "a name without a password": (
        "alerts:\n  notify: {username: me}\n",
        ["alerts.notify.username", "password_file"],
    ),
    "two ways to get in": (
        "alerts:\n  notify: {username: me, token_file: /none}\n",
        ["alerts.notify.username", "token_file"],
    ),
    "no YAML": ("scoring: {\n", ["c.yaml:2", "not YAML"]),
    "a tab": ("scoring:\n\tthreshold: 1\n", ["c.yaml:2", "not YAML", "not with tabs"]),
    "a port alone": ("metrics:\n  listen: 9464\n", ["metrics.listen", "9464", "HOST:PORT"]),
    "a part twice, as by pasting two examples": (
        "metrics:\n  listen: 0.0.0.0:9464\nscoring:\nmetrics:\n  cluster: a\n",
        ["c.yaml:4", "'metrics'", "line 1 has it"],
    ),
    "a key twice": (
        "scoring:\n  threshold: 0.8\n  threshold: 0.7\n",
        ["c.yaml:3", "'threshold'", "line 2 has it"],
    ),
    "a key twice within a list": ("alerts: [{a: 1, a: 2}]\n", ["c.yaml:1", "each key once"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, what: str) -> None:
    """File and key, value, expectation, remedy; in one sentence without a traceback."""
    text, expected = WRONG[what]
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_settings(file, {})
    message = str(error.value)
    for part in ("c.yaml", *expected):
        assert part in message


def test_a_missing_file_and_a_bad_flag_are_named(tmp_path: Path) -> None:
    """By the flag that gave them."""
    with pytest.raises(ConfigError, match="--config"):
        load_settings(tmp_path / "none.yaml", {})
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="--config"):
        load_settings(tmp_path / "binary", {})
    bad = {"receivers.otlp_http": "x", "scoring.window_steps": 0, "forward.url": "ftp://x"}
    for key, value in bad.items():
        with pytest.raises(ConfigError, match=flag_of(flag_rows()[key])[0]):
            load_settings(None, {key: value})
