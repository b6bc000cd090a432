"""Each anomaly is found where it is planted, with the operations that show it, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from judge.anomalies import RULES, judged
from judge.history import Operation, Place, read
from judge.shrinking import shrunk
from tests.judge.planted import INNOCENT, PLANTED, Story


def test_every_rule_has_its_planted_history() -> None:
    assert {rule.name for rule in RULES} == set(PLANTED)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_anomaly_is_found(name: str) -> None:
    found = {anomaly.rule: anomaly for anomaly in judged(PLANTED[name].told)}
    assert name in found, found
    assert found[name].operations
    assert found[name].text


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_anomaly_is_found_among_much_else_and_the_rest_is_left_out(name: str) -> None:
    story = PLANTED[name].told
    noise = Story()
    for number in range(60):
        noise.send(1000 + number, number, place=_elsewhere(number % 3), process=f"noise-{number % 3}")
    shifted = [_shifted(each, 1000) for each in noise.told.operations]
    whole = type(story)((*story.operations, *shifted))
    anomaly = next(each for each in judged(whole) if each.rule == name)
    witness = shrunk(whole, anomaly)
    assert {each.index for each in witness.operations} <= {each.index for each in story.operations}


@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_history_is_clean(name: str) -> None:
    assert [each for each in judged(INNOCENT[name].told) if not each.allowed] == []


def test_a_history_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    for name, story in {**PLANTED, **INNOCENT}.items():
        path = tmp_path / f"{name}.jsonl"
        story.told.write(path)
        assert read(path) == story.told


def _elsewhere(number: int) -> Place:
    return Place("noise", number)


def _shifted(operation: Operation, by: int) -> Operation:
    return replace(operation, index=operation.index + by, start=operation.start + by, end=operation.end + by)
