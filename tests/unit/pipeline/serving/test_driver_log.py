"""What drivers say, in the log of serve and as a reason."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from services.pipeline.serving.driver_log import DriverLog
from services.pipeline.serving.redaction import Hiding, secrets_in, secrets_of
from services.pipeline.settings import PipelineSettings


def said(line: str, *, secrets: frozenset[str] = frozenset()) -> tuple[list[dict[str, object]], str]:
    """What is logged of a line, and the driver's last word then."""
    driver_log = DriverLog("audit", Hiding(secrets))
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
    driver_log = DriverLog("audit", Hiding(()))
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


def test_secrets_are_hidden_in_lines_of_ours_too_however_json_writes_them() -> None:
    secret = 'p"\\sswört'
    line = json.dumps({"event": f"login as {secret} failed", "level": "error"})
    [logged], last_word = said(line, secrets=frozenset({secret}))
    assert (logged["event"], last_word) == ("login as *** failed", "login as *** failed")


def test_of_a_key_no_line_is_seen() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n"
    hiding = Hiding(secrets_in({"c1": {"ssl.key.pem": key}}))
    assert hiding.hide(f"before {key} after") == "before *** after"
    assert hiding.hide("kqhkiG9w0BAQEF") == "***"


def test_what_settings_hold_is_secret_for_every_driver() -> None:
    settings = PipelineSettings.model_validate(
        {
            "database_url": "postgresql://mesh:p%40ssword@here/mesh",
            "kafka_properties": {"sasl.password": "of the gateway", "security.protocol": "SASL_SSL"},
            "clusters": {
                "c1": {"bootstrap.servers": "here:9092", "ssl.key.password": "of the key"},
                "c2": {"sasl.password": "${env:OF_C2}"},
            },
            "schema_registry_credentials": "reader:of the registry",
        }
    )
    hidden = ("p%40ssword", "p@ssword", "of the gateway", "of the key", "of the registry", "reader:of the registry")
    seen = ("postgresql://mesh", "SASL_SSL", "here:9092", "${env:OF_C2} is not set")
    hiding = Hiding(secrets_of(settings))
    assert [hiding.hide(text) for text in (*hidden, *seen)] == ["***"] * len(hidden) + list(seen)
