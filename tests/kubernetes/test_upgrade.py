"""The upgrade of docs/how-to/kubernetes.md restarts one service, and one router, at a time."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import yaml

from docs.chart import CHART
from tests.kubernetes import charts
from tests.plain_english import ROOT

PAGE = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\$upgrade --set (\S+)", PAGE, re.MULTILINE)
BEFORE, AFTER = "0.1.0", "0.2.0"

Pods = dict[str, Any]
"""The pod of each Deployment and StatefulSet, as its template says."""


def pods(chart: Path, *changes: str) -> Pods:
    sets = [word for change in changes for word in ("--set", change)]
    release = ["template", charts.RELEASE, str(chart), f"--namespace={charts.NAMESPACE}", "--kube-version=1.30.0"]
    run = charts.helm(*release, *charts.options("full"), "--set", "routers.count=2", *sets)
    assert run.returncode == 0, run.stderr
    rendered = [each for each in yaml.safe_load_all(run.stdout) if each]
    return {
        each["metadata"]["name"].removeprefix(f"{charts.RELEASE}-"): each["spec"]["template"]
        for each in rendered
        if each["kind"] in ("Deployment", "StatefulSet")
    }


def restarted(earlier: Pods, later: Pods) -> set[str]:
    assert earlier.keys() == later.keys()
    return {name for name in earlier if earlier[name] != later[name]}


def test_each_step_of_the_page_restarts_what_it_names(tmp_path: Path) -> None:
    chart = released(tmp_path, AFTER)
    seen, now = [], pods(CHART, f"image.tag={BEFORE}")
    for number in range(len(STEPS)):
        then = pods(chart, *STEPS[: number + 1])
        seen.append(restarted(now, then))
        now = then
    assert seen == [set(), {"gateway"}, {"router-1"}, {"router-2"}, {"control"}, {"pipeline", "apply", "console"}]
    images = {each["image"].rpartition(":")[2] for pod in now.values() for each in pod["spec"]["containers"]}
    assert images == {AFTER}, "all services are of the new release in the end"


def test_a_tag_of_one_router_leaves_the_others_at_the_tag_of_all(tmp_path: Path) -> None:
    found = pods(CHART, "routers.imageTag=0.1.5", "routers.imageTags.router-2=0.2.0")
    tags = {name: found[name]["spec"]["containers"][0]["image"].rpartition(":")[2] for name in ("router-1", "router-2")}
    assert tags == {"router-1": "0.1.5", "router-2": "0.2.0"}


def test_a_new_chart_without_a_tag_changes_all_images(tmp_path: Path) -> None:
    """Therefore the first step of the page names the tag of before."""
    tagless = "image.tag="
    changed = restarted(pods(CHART, tagless), pods(released(tmp_path, AFTER), tagless))
    assert changed == {"gateway", "router-1", "router-2", "control", "pipeline", "apply", "console"}


def released(folder: Path, release: str) -> Path:
    """A copy of the chart as that of the release."""
    copy = folder / "kafka-mesh"
    shutil.copytree(CHART, copy)
    file = copy / "Chart.yaml"
    file.write_text(re.sub(r"(?i)^(version|appVersion): \S+", rf"\1: {release}", file.read_text("utf-8"), flags=re.M))
    return copy
