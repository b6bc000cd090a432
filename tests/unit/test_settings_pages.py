"""The pages of settings show what the classes of settings define."""

import pytest

from docs.settings import SETTINGS, page, settings, written


@pytest.mark.parametrize("service", SETTINGS)
def test_a_page_has_the_table_that_make_reference_writes(service: str) -> None:
    assert page(service).read_text(encoding="utf-8") == written(service), "run: make reference"


@pytest.mark.parametrize("service", SETTINGS)
def test_each_setting_says_what_it_means(service: str) -> None:
    assert {each.name.lower() for each in settings(service)} == set(SETTINGS[service].model_fields)
    assert [each.name for each in settings(service) if not each.meaning.endswith(".")] == []


def test_a_setting_has_its_values_and_its_default() -> None:
    shown = {each.name: (each.values, each.default) for each in settings("router")}
    assert shown["HOLD_MS"] == ("whole number, at least 100, at most 60 000", "`5000`")
    assert shown["SNAPSHOT_EVERY_EVENTS"] == ("whole number, at least 1", "`10000`")
    assert shown["CONTROL_ADDRESSES"] == ("list, with commas", "`127.0.0.1:7070`")
    assert shown["LOG_LEVEL"] == ("`DEBUG` or `INFO` or `WARNING` or `ERROR`", "`INFO`")
    assert shown["ALLOW_INSECURE"] == ("`true` or `false`", "`false`")
    assert shown["RPC_TLS_FOLDER"] == ("path", "empty")
