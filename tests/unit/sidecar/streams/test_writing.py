"""How a topology's records become Kafka's."""

import pytest

from services.sidecar.formats import Format
from services.sidecar.producing.serializing import Serializer
from services.sidecar.records import RawRecord
from services.sidecar.streams.records import StreamRecord, Target
from services.sidecar.streams.writing import encoding

TOTALS = Target("totals", Format.STRING, Format.JSON)


@pytest.mark.parametrize(("event_time", "in_kafka"), [(0, 1), (1, 1), (1_700_000_000_000, 1_700_000_000_000)])
async def test_the_first_moment_of_1970_is_not_now(event_time: int, in_kafka: int) -> None:
    encode = await encoding([TOTALS], Serializer(Format.STRING, Format.JSON), max_record_bytes=1_000)
    source = RawRecord("in", 0, 0, event_time, None, None, [])
    assert encode(TOTALS, StreamRecord("k", 1, event_time, [], source)).timestamp == in_kafka
