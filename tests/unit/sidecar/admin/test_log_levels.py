"""Levels of loggers at run time: what is shown, what is set, what is refused."""

import logging
from collections.abc import Iterator

import pytest

from services.sidecar.admin import log_levels
from services.sidecar.admin.log_levels import ROOT, UnknownLevelError, set_levels

APPLES = "apples.of.this.test"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = logging.root.level
    yield
    logging.root.setLevel(before)
    logging.getLogger(APPLES).setLevel(logging.NOTSET)


def test_levels_are_set_and_shown_root_first() -> None:
    shown = set_levels({APPLES: "debug", ROOT: "ERROR"})
    assert next(iter(shown.items())) == (ROOT, "ERROR")
    assert shown[APPLES] == "DEBUG"
    assert shown == log_levels.levels()


def test_a_level_counts_at_once_for_loggers_below() -> None:
    set_levels({ROOT: "WARNING", APPLES: "INFO"})
    below = logging.getLogger(f"{APPLES}.green")
    assert below.isEnabledFor(logging.INFO)
    assert log_levels.level_of(below.name) == "INFO"
    assert not logging.getLogger("pears.of.this.test").isEnabledFor(logging.INFO)


def test_the_originals_words_are_understood() -> None:
    assert set_levels({APPLES: "WARN"})[APPLES] == "WARNING"
    assert set_levels({APPLES: "trace"})[APPLES] == "DEBUG"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({APPLES: "ERROR", "pears": "LOUD"}, "'LOUD' is no level; take one of DEBUG, INFO"),
        ({APPLES: "ERROR", "": "INFO"}, "1 to 200 characters"),
        ({APPLES: "ERROR", "x" * 201: "INFO"}, "1 to 200 characters"),
        ({APPLES: "ERROR"} | {f"{APPLES}.{number}": "INFO" for number in range(1_000)}, "more than 1000"),
    ],
)
def test_all_are_set_or_none(wanted: dict[str, str], said: str) -> None:
    set_levels({APPLES: "INFO"})
    with pytest.raises(UnknownLevelError, match=said):
        set_levels(wanted)
    assert log_levels.levels()[APPLES] == "INFO"


def test_libraries_that_log_addresses_are_quiet_until_they_are_named() -> None:
    log_levels.quieten()
    log_levels.set_levels({"ROOT": "DEBUG"})
    assert log_levels.level_of("httpx") == log_levels.level_of("httpx2") == "WARNING"
    assert log_levels.set_levels({"httpx": "INFO"})["httpx"] == "INFO"
