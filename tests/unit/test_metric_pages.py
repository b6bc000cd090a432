"""The pages of metrics show what the code defines, under names that Prometheus' own tool has nothing against."""

import re
import subprocess
from collections.abc import Iterable

import pytest

from docs.metrics import PREFIX, ROOT, SERVICES, Described, metrics, page, written
from tests.fixtures.toolchains import need


@pytest.mark.parametrize("service", SERVICES)
def test_a_page_has_the_table_that_make_reference_writes(service: str) -> None:
    assert page(service).read_text(encoding="utf-8") == written(service), "run: make reference"


@pytest.mark.parametrize("service", SERVICES)
def test_each_metric_says_what_it_means(service: str) -> None:
    assert metrics(service)
    assert [each.name for each in metrics(service) if not each.meaning.endswith(".")] == []


def test_each_metric_that_a_page_names_exists() -> None:
    known = {name for service in SERVICES for each in metrics(service) for name in (each.name, *each.series)}
    text = "".join(each.read_text(encoding="utf-8") for each in (ROOT / "docs").rglob("*.md"))
    named = set(re.findall(rf"\b{PREFIX}(?:{'|'.join(SERVICES)})_[a-z_]+[a-z]\b", text))
    assert named - known == set()


def linted(described: Iterable[Described]) -> str:
    """The faults that Prometheus' own tool finds in names, types and units."""
    (promtool,) = need("promtool")
    lines: list[str] = []
    for each in described:
        form = "gauge" if each.type in ("info", "unknown") else each.type
        lines += [f"# HELP {each.name} {each.meaning}", f"# TYPE {each.name} {form}"]
        parts = ("_sum", "_count", '_bucket{le="+Inf"}') if form == "histogram" else ("",)
        lines += [f"{each.name}{part} 0" for part in parts]
    text = "\n".join([*lines, ""])
    run = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=30, check=False
    )
    return run.stdout + run.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_names_and_units_are_as_prometheus_wants_them(service: str) -> None:
    assert linted(metrics(service)) == ""


def test_a_unit_that_is_no_base_unit_is_found() -> None:
    assert "milliseconds" in linted([Described("kafka_mesh_eating_milliseconds", "histogram", (), "Too fine.")])
