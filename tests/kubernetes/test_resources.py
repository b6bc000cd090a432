"""Requests and limits are those of docs/how-to/capacity.md, and a gateway's bounds fit into them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from docs.chart import CHART
from services.gateway.settings import GatewaySettings
from services.pipeline.settings import PipelineSettings
from tests.kubernetes import charts
from tests.plain_english import ROOT

PAGE = (ROOT / "docs" / "how-to" / "capacity.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([a-z.]+)` \| (.+?) \| (\w+), (\w+) \| (\w+) \| .+ \|$", re.MULTILINE)
ROWS = {name: (cpu, memory, limit) for name, _, cpu, memory, limit in ROW.findall(PAGE)}
"""By service: the request of CPU and of memory, and the limit of memory."""
MIB = 1024**2
IDLE_GATEWAY = 110e6
"""Bytes, measured: docs/how-to/capacity.md."""


def values(service: str) -> tuple[str, str, str]:
    """The figures of the chart, or of the sidecar's example, for this service."""
    found: Any = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    if service == "sidecar.yaml":
        found = yaml.safe_load((ROOT / "deploy" / "kubernetes" / service).read_text(encoding="utf-8"))
        (found,) = found["spec"]["template"]["spec"]["initContainers"]
    elif service == "pipeline.executors":
        executors = found["pipeline"]["executors"]
        memory = sum(int(executors[name].removesuffix("g")) for name in ("memory", "memoryOverhead"))
        return str(executors["cores"]), f"{memory}g", f"{memory}g"
    else:
        found = found[service]
    resources = found["resources"]
    return resources["requests"]["cpu"], resources["requests"]["memory"], resources["limits"]["memory"]


def test_each_service_of_the_chart_has_a_row() -> None:
    found = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    services = {name for name, each in found.items() if "resources" in each}
    assert set(ROWS) == services | {"pipeline.executors", "sidecar.yaml"}


@pytest.mark.parametrize("service", ROWS)
def test_values_are_those_of_the_page(service: str) -> None:
    assert values(service) == ROWS[service]


def test_the_bounds_of_a_gateway_fit_into_what_it_asks_for() -> None:
    resources = charts.workload("default", "gateway").container["resources"]
    bounds = GatewaySettings(allow_insecure=True)
    held = IDLE_GATEWAY + (bounds.max_in_flight_mib + bounds.max_gathered_mib) * MIB
    assert held < mebibytes(resources["requests"]["memory"]) * MIB
    assert mebibytes(resources["requests"]["memory"]) < mebibytes(resources["limits"]["memory"])


def test_the_jvm_of_a_driver_fits_into_what_the_pipeline_asks_for() -> None:
    pipeline = charts.workload("full", "pipeline")
    found = {each["name"]: each.get("value") for each in pipeline.container["env"]}
    assert found["KAFKA_MESH_PIPELINE_DRIVER_MEMORY"] == PipelineSettings.model_fields["driver_memory"].default
    jvms = 3 * (1024 + 400)  # two continuous jobs and one driver of `maxDrivers`
    assert jvms < mebibytes(pipeline.container["resources"]["limits"]["memory"])


def mebibytes(quantity: str) -> int:
    number, unit = re.findall(r"^(\d+)([MG])i$", quantity)[0]
    return int(number) * {"M": 1, "G": 1024}[unit]
