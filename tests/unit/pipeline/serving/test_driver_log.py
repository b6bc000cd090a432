"""What drivers say, in the log of serve and as a reason."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from services.pipeline.serving.driver_log import DriverLog, secrets_in


def said(line: str, *, secrets: frozenset[str] = frozenset()) -> tuple[list[dict[str, object]], str]:
    """What is logged of a line, and the driver's last word then."""
    driver_log = DriverLog("audit", secrets)
    with capture_logs() as logged:
        driver_log.take(line.encode())
    return [dict(each) for each in logged], driver_log.last_word


def test_a_line_of_ours_keeps_its_level_and_fields_and_gets_the_job() -> None:
    line = {
        "event": "batch written",
        "level": "warning",
        "batch": 7,
        "logger": "services.pipeline.jobs",
        "service": "x",
    }
    [logged], last_word = said(json.dumps(line))
    assert logged == {
        "event": "batch written",
        "log_level": "warning",
        "job": "audit",
        "batch": 7,
        "logged_by": "services.pipeline.jobs",
    }
    assert last_word == ""


def test_errors_are_last_words() -> None:
    assert said(json.dumps({"event": "the table is gone", "level": "error"}))[1] == "the table is gone"
    assert said("Error: no room on /data")[1] == "no room on /data"


def test_an_error_is_a_better_reason_than_what_is_said_after_it() -> None:
    driver_log = DriverLog("audit")
    for line in ("Error: no room on /data", "To adjust logging level use sc.setLogLevel(newLevel)."):
        driver_log.take(line.encode())
    assert driver_log.last_word == "no room on /data"


def test_a_trace_is_logged_and_is_no_last_word() -> None:
    [logged], last_word = said("\tat org.apache.spark.Something(Something.scala:17)")
    assert (logged["line"], last_word) == ("\tat org.apache.spark.Something(Something.scala:17)", "")


@pytest.mark.parametrize("line", ["{broken", '{"no": "event"}', '["event"]'])
def test_what_only_looks_like_a_line_of_ours_is_passed_on(line: str) -> None:
    assert said(line)[0][0]["line"] == line


def test_nothing_is_said_of_an_empty_line() -> None:
    assert said("  \n") == ([], "")


def test_secrets_of_the_order_are_hidden() -> None:
    properties = {"bootstrap.servers": "here:9092", "sasl.username": "mesh-reader", "sasl.password": "s3cr3t"}
    [logged], last_word = said("Error: s3cr3t of mesh-reader at here:9092", secrets=secrets_in({"c1": properties}))
    assert (logged["line"], last_word) == ("Error: *** of *** at here:9092", "*** of *** at here:9092")
