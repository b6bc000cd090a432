"""The pages of metrics show what the code defines."""

import pytest

from docs.metrics import SERVICES, metrics, page, written


@pytest.mark.parametrize("service", SERVICES)
def test_a_page_has_the_table_that_make_reference_writes(service: str) -> None:
    assert page(service).read_text(encoding="utf-8") == written(service), "run: make reference"


@pytest.mark.parametrize("service", SERVICES)
def test_each_metric_says_what_it_means(service: str) -> None:
    assert metrics(service)
    assert [each.name for each in metrics(service) if not each.meaning.endswith(".")] == []
