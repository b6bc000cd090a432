"""What the settings say of a reactive consumer, and what is warned of by name."""

import asyncio

import pytest
import structlog
from pydantic import ValidationError

from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.delivering.batch import Batch, Deliverable, Settlement
from services.sidecar.delivering.record_shower import RecordShower
from services.sidecar.formats import Format
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.reactive import batch_processor
from services.sidecar.reactive.batch_processor import BatchProcessor, Unreadable
from services.sidecar.records import Outcome, Partition, RawRecord, Verdict
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.reactive import reactive_options, warn_of_settings

APPLES = Partition("apples", 0)


def read(**given: object) -> SidecarSettings:
    return SidecarSettings.model_validate(given)


def test_it_is_there_where_there_is_something_to_read() -> None:
    assert not read().reads_by_itself
    assert read(reactive_topics="apples,pears").reads_by_itself
    assert not read(reactive_topics="apples", reactive_enabled=False).reads_by_itself


def test_a_batch_is_as_large_as_a_read_unless_it_is_said() -> None:
    assert reactive_options(read(request_max_bytes=5_000)).delivery.max_batch_bytes == 5_000
    assert reactive_options(read(reactive_max_batch_bytes=7_000)).delivery.max_batch_bytes == 7_000


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://localhost:9000", True),
        ("http://127.0.0.2:9000", True),
        ("http://[::1]:9000", True),
        ("https://SHOP:9000", True),
        ("http://shop-2", True),
        ("http://elsewhere:8080", False),
        ("http://shop.elsewhere:8080", False),
        ("http://[", False),
    ],
)
def test_an_order_sends_records_to_no_host_that_the_settings_do_not_name(url: str, allowed: bool) -> None:
    options = reactive_options(read(backend_url="http://shop:8080", backend_hosts="Shop-2"))
    assert options.allows_backend(url) is allowed


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"reactive_topics": "apples", "reactive_topic_pattern": "p.*"}, "exclude each other"),
        ({"reactive_topics": "no topic"}, "is not the name of a topic"),
        ({"reactive_topic_pattern": "("}, "is no pattern"),
        ({"reactive_enabled": True}, "nothing to read"),
        ({"reactive_exactly_once": True, "reactive_order_by_key": True}, "exclude each other"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        read(**given)


@pytest.mark.parametrize("name", ["fetch.max.bytes", "max.partition.fetch.bytes"])
def test_fetches_not_below_a_batch_are_warned_of_by_name(name: str) -> None:
    with structlog.testing.capture_logs() as said:
        warn_of_settings(read(request_max_bytes=1_000, consumer_properties={name: "999"}))
        assert said == []
        warn_of_settings(read(request_max_bytes=1_000, consumer_properties={name: "1000"}))
    (warning,) = said
    assert (warning["log_level"], name in warning["event"]) == ("warning", True)


class SlowSink:
    """A backend that takes its time."""

    def path(self, record: Deliverable) -> str | None:
        return ""

    async def deliver(self, batch: Batch) -> Settlement:
        await asyncio.sleep(0.02)
        return Settlement(APPLES, tuple(Verdict(one.raw, Outcome.SUCCESS) for one in batch.records))


async def test_a_batch_that_takes_too_long_is_warned_of_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_processor, "LONG_BATCH_SECONDS", 0.001)

    async def settle(settlement: Settlement, next_offset: int) -> None:
        assert next_offset == 8

    made = BatchProcessor(
        "shop", RecordShower(Format.STRING, Format.STRING, RecordReader()), settle, AuditTrail(), Unreadable.DEAD_LETTER
    )
    with structlog.testing.capture_logs() as said:
        await made.process(APPLES, [RawRecord("apples", 0, 7, 0, None, b"x", [])], SlowSink())  # type: ignore[arg-type]
    (warning,) = (one for one in said if "takes longer" in one["event"])
    assert (warning["partition"], warning["first"], warning["last"]) == ("apples-0", 7, 7)
