"""The pages of metrics show what the code defines."""

import re

import pytest

from docs.metrics import PREFIX, ROOT, SERVICES, metrics, page, written


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
