"""A client that is cut off fills no log."""

from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from services.sidecar.telemetry import metrics
from services.sidecar.telemetry.client_errors import REPEAT_SECONDS, ClientErrors


def test_an_error_is_logged_once_in_a_while_and_counted_always() -> None:
    now = 0.0
    errors = ClientErrors("test", clock=lambda: now)
    before = metrics.client_errors.labels("test")._value.get()
    with capture_logs() as lines:
        for _ in range(5):
            errors(KafkaError(KafkaError._TRANSPORT))
        errors(KafkaError(KafkaError._AUTHENTICATION))
        now = REPEAT_SECONDS
        errors(KafkaError(KafkaError._TRANSPORT))
    assert [(line["code"], line["repeated"]) for line in lines] == [
        ("_TRANSPORT", 0),
        ("_AUTHENTICATION", 0),
        ("_TRANSPORT", 4),
    ]
    assert metrics.client_errors.labels("test")._value.get() - before == 7
