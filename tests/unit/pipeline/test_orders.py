"""What serve and drivers tell each other, a line each."""

from __future__ import annotations

import json

import pytest

from mesh.rpc import replays
from services.pipeline.driver_protocol.orders import (
    InvalidOrderError,
    InvalidReportError,
    Order,
    report_from_line,
    report_to_line,
)


def test_an_order_is_one_line_and_is_read_as_it_was_written() -> None:
    replay = replays.Replay(name="replays/r1", partitions=[replays.ReplayPartition(topic="apples", position=7)])
    order = Order(replay, {"c1": {"bootstrap.servers": "here:9092"}}, archive="/data/fruit")
    assert "\n" not in order.to_line()
    assert Order.from_line(order.to_line()) == order


def test_a_report_is_one_line_and_is_read_as_it_was_written() -> None:
    report = replays.ReportReplayRequest(
        name="replays/r1", state=replays.REPLAY_STATE_DONE, description="of\ntwo lines"
    )
    assert "\n" not in report_to_line(report)
    assert report_from_line(report_to_line(report)) == report


@pytest.mark.parametrize("line", ["", "no json", "{}", '{"replay": 1, "clusters": {}, "archive": ""}'])
def test_what_is_no_order_is_refused_and_not_repeated(line: str) -> None:
    with pytest.raises(InvalidOrderError, match=r"^the order can't be read: \w+$"):
        Order.from_line(line)


def test_an_order_of_another_release_is_refused_and_its_secrets_are_not_repeated() -> None:
    said = {"replay": {"nothing": "known"}, "clusters": {"c1": {"sasl.password": "s3cr3t"}}, "archive": ""}
    with pytest.raises(InvalidOrderError, match=r"^the order can't be read: ParseError$"):
        Order.from_line(json.dumps(said))


@pytest.mark.parametrize("line", ["", "a library's own words", '{"nothing": "known"}', '{"state": 77, "name": 1}'])
def test_what_is_no_report_is_refused(line: str) -> None:
    with pytest.raises(InvalidReportError):
        report_from_line(line)
