"""docs/reference/metrics.md, the dashboard and the alert rules name metrics that are there, and the page names all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from lamina.server.measures.names import METRICS
from lamina.server.measures.room import STATES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"
ALERTS = ROOT / "deploy" / "prometheus-alerts.yml"

_ROW = re.compile(r"^\| `(lamina_\w+)` \| (\w+) \| (\w*) ?\| (.*?) ?\| (.+) \|$", re.MULTILINE)
SERIES = {
    name: metric
    for metric in METRICS
    for name in (
        [f"{metric.name}_{part}" for part in ("bucket", "sum", "count")]
        if metric.kind == "histogram"
        else [metric.name]
    )
}


def _unit(name: str) -> str:
    last = name.removesuffix("_total").rpartition("_")[2]
    return last if last in ("seconds", "bytes", "ratio") else ""


def test_the_page_has_every_metric_as_it_is_and_no_other() -> None:
    shown = [
        (name, kind, unit, tuple(re.findall(r"`(\w+)`", labels)), meaning)
        for name, kind, unit, labels, meaning in _ROW.findall(PAGE)
    ]
    assert shown == [(one.name, one.kind, _unit(one.name), one.labels, one.help) for one in METRICS]


def test_the_page_names_no_metric_that_is_not_there() -> None:
    assert set(re.findall(r"`(lamina_\w+)`", PAGE)) == {metric.name for metric in METRICS}


def test_the_page_explains_all_states_of_segments() -> None:
    text = PAGE.split("States of segments")[1].split("\n\n")[0]
    assert all(f"`{state}`" in text for state in STATES)


def _check(expression: str) -> None:
    """Every series that it names is there, with the labels that it is asked by."""
    found = re.findall(r"\b(lamina_\w+)(?:\{([^}]*)\})?", expression)
    assert found, expression
    for name, chosen in found:
        assert name in SERIES, expression
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", chosen)) - {"instance", "job"}
        assert asked <= {*SERIES[name].labels, "le"}, expression
    labels = {label for name, _ in found for label in SERIES[name].labels} | {"instance", "job", "le"}
    for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression):
        assert {label.strip() for label in group.split(",")} <= labels, expression


def test_the_alert_rules_use_metrics_that_are_there() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
    names = [rule["alert"] for rule in rules]
    assert len(names) == len(set(names))
    for rule in rules:
        _check(rule["expr"])
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
    used = " ".join(rule["expr"] for rule in rules)
    for wanted in (
        *(
            "lamina_log_failed",
            "lamina_disk_free_bytes",
            "lamina_jobs_oldest_ready_seconds",
            "lamina_group_lag_seconds",
        ),
        *("lamina_jobs_dead_total", "lamina_log_unsynced_seconds", "lamina_ready", "lamina_log_sync_seconds_bucket"),
    ):
        assert wanted in used


def test_the_dashboard_uses_metrics_that_are_there() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        assert panel["targets"] and panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            _check(target["expr"])
            assert "rate(" in target["expr"] or "increase(" in target["expr"] or "_total" not in target["expr"]
    spots = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(spots)) == len(spots)
