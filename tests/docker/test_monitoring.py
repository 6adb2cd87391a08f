"""Alerts, the dashboard and Prometheus' configuration, judged by the real promtool."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.metric_names import documented, sections
from helpers.paths import ROOT

MONITORING = ROOT / "docker" / "monitoring"
ALERTS = MONITORING / "alerts.yaml"
DASHBOARD = MONITORING / "grafana" / "dashboard.json"

WORKER = 'job="sketchstream-worker", instance="w"'
SERVE = 'job="sketchstream-serve", instance="s"'
PARTITION = f'{WORKER}, topic="events", partition="0"'
ON, OFF = "1x180", "0x180"
"""Values of three hours, one a minute."""

Series = dict[str, str]
CASES: dict[str, tuple[Series, Series]] = {
    "SketchstreamWorkerDown": ({f"up{{{WORKER}}}": OFF}, {f"up{{{WORKER}}}": "1x60 0x2 1x120"}),
    "SketchstreamPartitionHalted": (
        {f'sketchstream_partition_status{{{PARTITION}, status="halted"}}': ON},
        {
            f'sketchstream_partition_status{{{PARTITION}, status="halted"}}': OFF,
            f'sketchstream_partition_status{{{PARTITION}, status="running"}}': ON,
        },
    ),
    "SketchstreamPartitionStalled": (
        {f'sketchstream_partition_status{{{PARTITION}, status="stalled"}}': ON},
        {f'sketchstream_partition_status{{{PARTITION}, status="restoring"}}': ON},
    ),
    "SketchstreamPartitionRestoring": (
        {f'sketchstream_partition_status{{{PARTITION}, status="restoring"}}': ON},
        {f'sketchstream_partition_status{{{PARTITION}, status="restoring"}}': "0x173 1x7"},
    ),
    "SketchstreamPartitionUnowned": (
        {
            f'sketchstream_partition_status{{{PARTITION}, status="running"}}': ON,
            f'sketchstream_partition_status{{{PARTITION.replace("0", "1")}, status="running"}}': "1x165 stale",
        },
        {f'sketchstream_partition_status{{{PARTITION}, status="running"}}': ON},
    ),
    "SketchstreamLag": (
        {f"sketchstream_consumer_lag_seconds{{{PARTITION}}}": "0+60x180"},
        {f"sketchstream_consumer_lag_seconds{{{PARTITION}}}": "30x180"},
    ),
    "SketchstreamWatermarkOld": (
        {f"sketchstream_watermark_timestamp_seconds{{{PARTITION}}}": "0x180"},
        {f"sketchstream_watermark_timestamp_seconds{{{PARTITION}}}": "-600+60x180"},
    ),
    "SketchstreamPublicationSlow": (
        {
            f'sketchstream_publication_delay_seconds_bucket{{{WORKER}, le="3600"}}': "0+1x180",
            f'sketchstream_publication_delay_seconds_bucket{{{WORKER}, le="7200"}}': "0+10x180",
            f'sketchstream_publication_delay_seconds_bucket{{{WORKER}, le="+Inf"}}': "0+10x180",
        },
        {
            f'sketchstream_publication_delay_seconds_bucket{{{WORKER}, le="3600"}}': "0+10x180",
            f'sketchstream_publication_delay_seconds_bucket{{{WORKER}, le="+Inf"}}': "0+10x180",
        },
    ),
    "SketchstreamCommitsFail": (
        {f"sketchstream_commit_failures_total{{{WORKER}}}": "0+1x180"},
        {f"sketchstream_commit_failures_total{{{WORKER}}}": "0x170 2x10"},
    ),
    "SketchstreamDataLost": (
        {
            f"sketchstream_lost_offsets_total{{{WORKER}}}": "0x150 7x30",
            f"sketchstream_diverged_offsets_total{{{WORKER}}}": OFF,
        },
        {
            f"sketchstream_lost_offsets_total{{{WORKER}}}": OFF,
            f"sketchstream_diverged_offsets_total{{{WORKER}}}": OFF,
        },
    ),
    "SketchstreamRecordsLate": (
        {
            f'sketchstream_late_total{{{WORKER}, sketch="a"}}': "0+10x180",
            f"sketchstream_records_total{{{WORKER}}}": "0+100x180",
        },
        {
            f'sketchstream_late_total{{{WORKER}, sketch="a"}}': "0+1x180",
            f"sketchstream_records_total{{{WORKER}}}": "0+100x180",
        },
    ),
    "SketchstreamRecordsMisplaced": (
        {
            f"sketchstream_misplaced_total{{{WORKER}}}": "0+10x180",
            f"sketchstream_updates_total{{{WORKER}}}": "0+90x180",
        },
        {
            f"sketchstream_misplaced_total{{{WORKER}}}": OFF,
            f"sketchstream_updates_total{{{WORKER}}}": "0+100x180",
        },
    ),
    "SketchstreamClockSkew": (
        {f"sketchstream_clock_skew_seconds{{{WORKER}}}": "-90x180"},
        {f"sketchstream_clock_skew_seconds{{{WORKER}}}": "2x180"},
    ),
    "SketchstreamMixedConfigurations": (
        {f"sketchstream_mixed_configurations{{{WORKER}}}": ON},
        {f"sketchstream_mixed_configurations{{{WORKER}}}": "0x100 1x2 0x78"},
    ),
    "SketchstreamRebalances": (
        {f"sketchstream_rebalances_total{{{WORKER}}}": "0+1x180"},
        {f"sketchstream_rebalances_total{{{WORKER}}}": "0x150 4x30"},
    ),
    "SketchstreamThrottled": (
        {f"sketchstream_partition_throttled{{{PARTITION}}}": ON},
        {f"sketchstream_partition_throttled{{{PARTITION}}}": "0x176 1x4"},
    ),
    "SketchstreamSnapshotSlow": (
        {f"sketchstream_snapshot_age_seconds{{{PARTITION}}}": "0+60x180"},
        {f"sketchstream_snapshot_age_seconds{{{PARTITION}}}": "3x180"},
    ),
    "SketchstreamServeDown": ({f"up{{{SERVE}}}": OFF}, {f"up{{{SERVE}}}": ON}),
    "SketchstreamServeBehind": (
        {f'sketchstream_serve_behind_seconds{{{SERVE}, sketch="a"}}': "2000x180"},
        {
            f'sketchstream_serve_behind_seconds{{{SERVE}, sketch="a"}}': "10x180",
            f"sketchstream_serve_ready{{{SERVE}}}": ON,
        },
    ),
    "SketchstreamServeStuck": (
        {
            f"sketchstream_serve_threads_running{{{SERVE}}}": "1x180",
            f"sketchstream_serve_threads_needed{{{SERVE}}}": "2x180",
        },
        {
            f"sketchstream_serve_follower_stuck{{{SERVE}}}": OFF,
            f"sketchstream_serve_threads_running{{{SERVE}}}": "2x180",
            f"sketchstream_serve_threads_needed{{{SERVE}}}": "2x180",
        },
    ),
    "SketchstreamServeDatabase": (
        {f"sketchstream_serve_database_trouble{{{SERVE}}}": ON},
        {f"sketchstream_serve_database_trouble{{{SERVE}}}": OFF},
    ),
    "SketchstreamServeIncident": (
        {f'sketchstream_serve_windows_incidents{{{SERVE}, sketch="a"}}': "0x90 1x90"},
        {f'sketchstream_serve_windows_incidents{{{SERVE}, sketch="a"}}': OFF},
    ),
    "SketchstreamServeUnreadable": (
        {f"sketchstream_serve_unreadable{{{SERVE}}}": "3x180"},
        {f"sketchstream_serve_unreadable{{{SERVE}}}": OFF},
    ),
    "SketchstreamServeErrors": (
        {
            f'sketchstream_serve_requests_total{{{SERVE}, route="/v1/sketches", status="503"}}': "0+10x180",
            f'sketchstream_serve_requests_total{{{SERVE}, route="/v1/sketches", status="200"}}': "0+90x180",
        },
        {
            f'sketchstream_serve_requests_total{{{SERVE}, route="/v1/sketches", status="404"}}': "0+10x180",
            f'sketchstream_serve_requests_total{{{SERVE}, route="/v1/sketches", status="503"}}': "0+1x180",
            f'sketchstream_serve_requests_total{{{SERVE}, route="/v1/sketches", status="200"}}': "0+90x180",
        },
    ),
    "SketchstreamServeSlow": (
        {
            f'sketchstream_serve_request_seconds_bucket{{{SERVE}, le="5.0"}}': "0+90x180",
            f'sketchstream_serve_request_seconds_bucket{{{SERVE}, le="10.0"}}': "0+100x180",
            f'sketchstream_serve_request_seconds_bucket{{{SERVE}, le="+Inf"}}': "0+100x180",
        },
        {
            f'sketchstream_serve_request_seconds_bucket{{{SERVE}, le="5.0"}}': "0+99x180",
            f'sketchstream_serve_request_seconds_bucket{{{SERVE}, le="+Inf"}}': "0+100x180",
        },
    ),
    "SketchstreamAnswersFail": (
        {f"sketchstream_serve_failures_total{{{SERVE}}}": "0x150 1x30"},
        {f"sketchstream_serve_failures_total{{{SERVE}}}": "3x180"},
    ),
    "SketchstreamAnswerOld": (
        {f'sketchstream_serve_answer_window_end_timestamp_seconds{{{SERVE}, sketch="a"}}': "-200000x180"},
        {f'sketchstream_serve_answer_window_end_timestamp_seconds{{{SERVE}, sketch="a"}}': "-90000x180"},
    ),
    "SketchstreamDescriptors": (
        {f"process_open_fds{{{WORKER}}}": "900x180", f"process_max_fds{{{WORKER}}}": "1024x180"},
        {f"process_open_fds{{{WORKER}}}": "100x180", f"process_max_fds{{{WORKER}}}": "1024x180"},
    ),
    "SketchstreamRestarts": (
        {f"process_start_time_seconds{{{WORKER}}}": "0+300x180"},
        {f"process_start_time_seconds{{{WORKER}}}": "0x170 10000x10"},
    ),
}
"""By alert: series with which it fires after three hours, and series with which it does not."""


def promtool(*arguments: str | Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool (Debian: prometheus)."""
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, cwd=folder, check=False)


def rules() -> dict[str, dict[str, Any]]:
    """All alert rules by name."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def played(name: str, series: Series, *, fires: bool, at: str = "180m") -> dict[str, Any]:
    """A test of promtool: these series, and whether the alert fires at their end."""
    expression = f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) > bool 0'
    expected = [{"labels": "{}", "value": 1}] if fires else []
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": at, "exp_samples": expected}],
    }


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == rules().keys()


@pytest.mark.parametrize("broken", [False, True])
def test_every_alert_fires_on_its_series_and_is_silent_on_a_healthy_one(tmp_path: Path, broken: bool) -> None:
    """With all expectations turned round, promtool must refuse every one of them: the test can fail."""
    tests = [
        played(name, series, fires=fires != broken)
        for name, both in CASES.items()
        for series, fires in zip(both, (True, False), strict=True)
    ]
    file = tmp_path / "played.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    found = promtool("test", "rules", file)
    if broken:
        assert found.returncode != 0
        assert found.stdout.count("expr:") + found.stderr.count("expr:") >= len(tests)
    else:
        assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("gone", ["one of two", "all, with their targets"])
def test_a_partition_without_a_worker_is_reported_for_more_than_half_an_hour(tmp_path: Path, gone: str) -> None:
    """A page that ends by itself while nothing is counted would be taken for the end of the trouble."""
    others = "1x60 _x900" if gone.startswith("all") else "1x960"
    series = {
        f'sketchstream_partition_status{{{PARTITION.replace("0", "1")}, status="running"}}': "1x60 _x900",
        f'sketchstream_partition_status{{{PARTITION}, status="running"}}': others,
    }
    name = "SketchstreamPartitionUnowned"
    tests = [played(name, series, fires=at > 60, at=f"{at}m") for at in (50, 80, 120, 900)]
    file = tmp_path / "played.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    found = promtool("test", "rules", file)
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_alert_has_a_runbook_of_its_name() -> None:
    runbooks = sections("Alerts and runbooks")
    assert set(runbooks) == set(rules())
    for name, rule in rules().items():
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert len(runbooks[name].split()) >= 20, f"the runbook of {name} says too little"


def expressions() -> list[str]:
    """All expressions of the dashboard, with its variables replaced."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
            found.append(re.sub(r"\$(\w+)", ".*", text))
    return found


def names_in(expression: str) -> set[str]:
    """Names of metrics in an expression."""
    return set(re.findall(r"\b(?:sketchstream|process)_\w+", expression))


def exported() -> set[str]:
    """Names of all series that the table of docs/operations.md promises."""
    found = set()
    for name, one in documented().items():
        found.add(name)
        if one.type == "histogram":
            found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return found


def test_expressions_of_alerts_and_dashboard_name_metrics_that_exist() -> None:
    texts = [*expressions(), *(rule["expr"] for rule in rules().values())]
    assert len(texts) > 50
    for text in texts:
        assert names_in(text) <= exported(), text
        assert names_in(text) or "up{" in text, f"nothing of ours in {text}"


def test_promtool_parses_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    recorded = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions())]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    found = promtool("check", "rules", file)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{len(recorded)} rules found" in found.stdout
    recorded[3]["expr"] += ")"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    assert promtool("check", "rules", file).returncode != 0


def test_promtool_accepts_the_configuration_of_prometheus_and_refuses_a_broken_one(tmp_path: Path) -> None:
    good = ROOT / "docker" / "monitoring" / "prometheus.yaml"
    assert promtool("check", "config", "--syntax-only", good).returncode == 0
    broken = tmp_path / "prometheus.yaml"
    broken.write_text(good.read_text().replace("scrape_configs:", "scrape_configurations:"))
    assert promtool("check", "config", "--syntax-only", broken).returncode != 0


def test_the_dashboard_is_whole() -> None:
    board = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) > 20
    assert board["uid"] == "sketchstream"
    variables = {one["name"] for one in board["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", json.dumps(board["panels"]))) - {"__rate_interval", "__range"}
    assert used == variables - {"datasource"} | {"datasource"}
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["datasource"]["uid"] == "$datasource"
            assert panel["fieldConfig"]["defaults"].get("unit"), panel["title"]
    shown = {name for text in expressions() for name in names_in(text)}
    assert "sketchstream_serve_answer" in shown, "a dashboard shows reach itself"


def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    text = (MONITORING / "prometheus.yaml").read_text().replace("/run/secrets/metrics_token", "token")
    (tmp_path / "prometheus.yaml").write_text(text)
    (tmp_path / "token").write_text("x")
    (tmp_path / "alerts.yaml").write_text(ALERTS.read_text())
    found = promtool("check", "config", "prometheus.yaml", folder=tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    jobs = {job["job_name"] for job in yaml.safe_load(text)["scrape_configs"]}
    assert jobs == {"sketchstream-worker", "sketchstream-serve"}
    assert {one for rule in rules().values() for one in re.findall(r'job="([\w-]+)"', rule["expr"])} <= jobs
