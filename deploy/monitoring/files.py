"""The files that Prometheus and Grafana load, and the page of alerts, from monitoring.yaml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from docs import tables

HERE = Path(__file__).parent
PAGE = tables.ROOT / "docs" / "how-to" / "alerts.md"
SERVICES = ("all", *tables.MONITORED)
WRITTEN = "written by `make reference` from deploy/monitoring/monitoring.yaml"
PANELS_IN_A_ROW, HEIGHT, WIDTH = 4, 8, 24
_RANGE = "$__rate_interval"
_METRIC = re.compile(r"\b(?:kafka_mesh|process)_[a-z0-9_]+\b")


def description() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((HERE / "monitoring.yaml").read_text(encoding="utf-8"))
    for board in loaded["dashboards"]:
        for panel in _panels(board):
            if "per" in panel:
                panel["expr"] = _of_histogram(panel)
    return loaded


def _of_histogram(panel: dict[str, Any]) -> str:
    """Prometheus has a histogram in one form alone, so one side of the `or` is empty."""
    labels = panel["per"]
    by = f"by ({', '.join(labels)}) " if labels else ""
    if "p99_of" in panel:
        metric = panel["p99_of"]
        classic = f"histogram_quantile(0.99, sum by ({', '.join(['le', *labels])}) (rate({metric}_bucket[{_RANGE}])))"
        return f"{classic} or histogram_quantile(0.99, sum {by}(rate({metric}[{_RANGE}])))"
    metric = panel["rate_of"]
    return f"sum {by}(rate({metric}_count[{_RANGE}])) or histogram_count(sum {by}(rate({metric}[{_RANGE}])))"


def metrics_of(described: dict[str, Any]) -> dict[str, set[str]]:
    """For each alert and panel, the metrics that its expression names."""
    named = {each["alert"]: each["expr"] for each in described["alerts"]}
    for board in described["dashboards"]:
        named |= {f"{board['title']}: {panel['title']}": panel["expr"] for panel in _panels(board)}
    return {where: set(_METRIC.findall(expression)) for where, expression in named.items()}


def files(described: dict[str, Any]) -> dict[Path, str]:
    """Each file with its text."""
    boards = {
        HERE / "dashboards" / f"{board['uid']}.json": json.dumps(_dashboard(board), indent=1) + "\n"
        for board in described["dashboards"]
    }
    return {HERE / "alerts.yaml": alert_rules(described), PAGE: _page(described), **boards}


def alert_rules(described: dict[str, Any]) -> str:
    """The rule file of Prometheus."""
    groups = []
    for service in SERVICES:
        rules = [_rule(each) for each in described["alerts"] if each["service"] == service]
        groups.append({"name": f"kafka-mesh-{service}", "rules": rules})
    return f"# {WRITTEN}\n" + yaml.safe_dump({"groups": groups}, sort_keys=False, width=1000)


def _rule(alert: dict[str, Any]) -> dict[str, Any]:
    rule = {"alert": f"KafkaMesh{alert['alert']}", "expr": alert["expr"]}
    if "for" in alert:
        rule["for"] = alert["for"]
    notes = {"summary": alert["summary"], "description": alert["means"], "remedy": alert["do"]}
    return {
        **rule,
        "labels": {"severity": alert["severity"]},
        "annotations": {**notes, "page": f"docs/how-to/alerts.md#{alert['alert'].lower()}"},
    }


def _dashboard(board: dict[str, Any]) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for row in board["rows"]:
        panels.append({"type": "row", "title": row["title"], "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top}})
        top += 1
        width = WIDTH // min(len(row["panels"]), PANELS_IN_A_ROW)
        for number, panel in enumerate(row["panels"]):
            line, column = divmod(number, PANELS_IN_A_ROW)
            place = {"h": HEIGHT, "w": width, "x": column * width, "y": top + line * HEIGHT}
            panels.append(_panel(panel, place))
        top += HEIGHT * -(-len(row["panels"]) // PANELS_IN_A_ROW)
    for number, each in enumerate(panels, 1):
        each["id"] = number
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": board["uid"],
        "title": board["title"],
        "tags": ["kafka-mesh"],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {"list": [source]},
        "panels": panels,
    }


def _panel(panel: dict[str, Any], place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": "timeseries",
        "title": panel["title"],
        "gridPos": place,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "datasource": source, "expr": panel["expr"], "legendFormat": panel["by"]}],
    }


def _panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in board["rows"]:
        yield from row["panels"]


def _page(described: dict[str, Any]) -> str:
    parts = [f"<!-- {WRITTEN} -->", "# Alerts", _INTRODUCTION]
    for service in SERVICES:
        parts.append(f"## {'All services' if service == 'all' else service.capitalize()}")
        for alert in described["alerts"]:
            if alert["service"] == service:
                after = f" for {alert['for']}" if "for" in alert else ""
                parts += [
                    f"### {alert['alert']}",
                    f"**{alert['severity']}** if `{alert['expr']}`{after}",
                    f"{alert['means']}",
                    f"*What to do*: {alert['do']}",
                ]
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = """\
Prometheus fires these alerts if it loads `deploy/monitoring/alerts.yaml`. There, each name begins with
`KafkaMesh`. [Monitor and alert](monitor-and-alert.md) says how to set Prometheus and Grafana up."""
