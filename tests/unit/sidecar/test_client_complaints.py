"""A client that is cut off fills no log."""

from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from services.sidecar import metrics
from services.sidecar.client_complaints import REPEAT_SECONDS, Complaints


def test_an_error_is_logged_once_in_a_while_and_counted_always() -> None:
    now = 0.0
    complaints = Complaints("test", clock=lambda: now)
    before = metrics.client_errors.labels("test")._value.get()
    with capture_logs() as lines:
        for _ in range(5):
            complaints(KafkaError(KafkaError._TRANSPORT))
        complaints(KafkaError(KafkaError._AUTHENTICATION))
        now = REPEAT_SECONDS
        complaints(KafkaError(KafkaError._TRANSPORT))
    assert [(line["code"], line["repeated"]) for line in lines] == [
        ("_TRANSPORT", 0),
        ("_AUTHENTICATION", 0),
        ("_TRANSPORT", 4),
    ]
    assert metrics.client_errors.labels("test")._value.get() - before == 7
