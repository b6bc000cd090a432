"""Alerts and dashboards of deploy/monitoring are those of their description, and ask for metrics that exist."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.monitoring.files import HERE, alert_rules, description, files, metrics_of
from docs.metrics import SERVICES, metrics
from docs.tables import MONITORED
from local.services import PORTS
from tests.fixtures.toolchains import need

OF_EACH_PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
"""Metrics that Prometheus' client library adds."""


def test_the_written_files_are_those_of_the_description() -> None:
    wanted = files(description())
    assert {path: path.read_text(encoding="utf-8") for path in wanted} == wanted, "run: make reference"
    assert {*(HERE / "dashboards").iterdir()} <= wanted.keys(), "a dashboard that the description does not have"


def test_each_expression_asks_for_metrics_that_exist() -> None:
    known = OF_EACH_PROCESS.union(*(each.series for service in SERVICES for each in metrics(service)))
    unknown = {where: names - known for where, names in metrics_of(description()).items() if names - known}
    assert unknown == {}


def test_a_panel_about_an_unknown_metric_is_found() -> None:
    described = description()
    described["dashboards"][0]["rows"][0]["panels"][0]["expr"] = "sum(kafka_mesh_gateway_no_such_metric)"
    assert {"kafka_mesh_gateway_no_such_metric"} in metrics_of(described).values()


def test_each_alert_has_its_own_name_and_a_severity_that_pagers_know() -> None:
    alerts = description()["alerts"]
    assert len({each["alert"] for each in alerts}) == len(alerts)
    assert {each["severity"] for each in alerts} == {"critical", "warning"}


def test_prometheus_takes_the_rules() -> None:
    (promtool,) = need("promtool")
    run = subprocess.run(
        [promtool, "check", "rules", HERE / "alerts.yaml"], capture_output=True, text=True, timeout=30, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_scrape_targets_are_the_ports_of_metrics() -> None:
    config = yaml.safe_load((HERE / "prometheus.yaml").read_text(encoding="utf-8"))
    targets = {target for job in config["scrape_configs"] for one in job["static_configs"] for target in one["targets"]}
    assert targets == {f"{each}:{PORTS[f'{each}-metrics']}" for each in MONITORED}


@pytest.mark.parametrize("file", sorted((HERE / "dashboards").iterdir()), ids=lambda file: file.stem)
def test_no_two_panels_of_a_dashboard_overlap(file: Path) -> None:
    places = [panel["gridPos"] for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))


def test_each_placeholder_of_a_text_is_a_label_or_the_value() -> None:
    names = set(re.findall(r"{{ ([^}]+) }}", alert_rules(description())))
    assert {name for name in names if not re.match(r"\$labels\.[a-z]+$|\$value( \| humanizeDuration)?$", name)} == set()


def test_the_alert_about_lag_fires_for_a_group_that_falls_behind_all_the_time(tmp_path: Path) -> None:
    (promtool,) = need("promtool")
    recent, old = "20+0x45", "700+60x45"
    course = {
        "many": ("20000+100x45", recent), "old": ("10+100x45", old), "steady": ("20000+0x45", old),
        "small": ("10+100x45", recent), "once": ("20000+100x10 20000+0x35", old),
    }  # fmt: skip
    scenario = {
        "rule_files": [str(HERE / "alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {
                        "series": f'kafka_mesh_control_group_lag_{unit}{{group="{group}", topic="apples"}}',
                        "values": values,
                    }
                    for group, said in course.items()
                    for unit, values in zip(("records", "seconds"), said, strict=True)
                ],
                "promql_expr_test": [
                    {
                        "expr": 'count by (group) (ALERTS{alertname="KafkaMeshGroupFallsBehind", alertstate="firing"})',
                        "eval_time": "45m",
                        "exp_samples": [{"labels": f'{{group="{each}"}}', "value": 1} for each in ("many", "old")],
                    }
                ],
            }
        ],
    }
    file = tmp_path / "lag.yaml"
    file.write_text(yaml.safe_dump(scenario), encoding="utf-8")
    run = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
