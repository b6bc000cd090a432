"""CloudEvents: what is one, over HTTP in three modes, as Kafka records in two. Their own SDK reads along."""

import base64
from typing import Any

import orjson
import pytest
from cloudevents.core.bindings import http, kafka
from cloudevents.core.v1.event import CloudEvent as SdkEvent
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from mesh.tracing.context import Trace
from services.sidecar.api.cloud_events import carries_events, event_records, events_of, said_beside_body
from services.sidecar.consuming.cloud_events import KafkaHeaders, event_in, wrapped
from services.sidecar.consuming.record_text import event_batch
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format, cloud_event, json_text
from services.sidecar.formats.cloud_event import CloudEvent
from services.sidecar.producing.cloud_events import ContentMode, outgoing
from services.sidecar.producing.headers import HeaderWriter, RequestHeaders
from services.sidecar.records import Consumed, Outgoing

REQUIRED: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def request(**headers: str) -> Request:
    """`content_type` and `ce_id` stand for `content-type` and `ce-id`."""
    lines = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": lines})


def structured(*events: object) -> list[CloudEvent]:
    return events_of(request(content_type="application/cloudevents-batch+json"), json_text.dumps(list(events)))


def binary(body: bytes = b"", **headers: str) -> CloudEvent:
    given = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/shop", "ce_type": "order.placed", **headers}
    (event,) = events_of(request(**given), body)
    return event


def record(event: CloudEvent, mode: ContentMode = ContentMode.BINARY, **headers: Any) -> Outgoing:
    (made,) = outgoing([event], mode, HeaderWriter(RequestHeaders(**headers)))
    return made


def headers_of(made: Outgoing) -> KafkaHeaders:
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in made.headers]


def shown_again(made: Outgoing) -> Any:
    """What a reader of the record gets."""
    return orjson.loads(orjson.dumps(event_in(headers_of(made), made.value)))


def as_read_by_the_sdk(made: Outgoing) -> SdkEvent:
    headers = {name: value for name, value in headers_of(made) if value is not None}
    event = kafka.from_kafka_event(kafka.KafkaMessage(headers=headers, key=made.key, value=made.value or b""))
    assert isinstance(event, SdkEvent)
    return event


class TestTheEvent:
    @pytest.mark.parametrize(
        ("given_data", "data"),
        [
            ({"data": {"n": 1}}, b'{"n":1}'),
            ({"data": "text"}, b'"text"'),
            ({"data": None}, b"null"),
            ({"data": 123456789012345678901234567890}, b"123456789012345678901234567890"),
            ({"data": "<a/>", "datacontenttype": "application/xml"}, b"<a/>"),
            ({"data": "ä", "datacontenttype": "text/plain; charset=iso-8859-1"}, b"\xe4"),
            ({"data": {"n": 1}, "datacontenttype": "application/geo+json"}, b'{"n":1}'),
            ({"data_base64": "AP8=", "datacontenttype": "image/png"}, b"\x00\xff"),
            ({"data_base64": None, "data": 1}, b"1"),
            ({}, None),
        ],
    )
    def test_data_is_in_the_bytes_of_its_type(self, given_data: dict[str, Any], data: bytes | None) -> None:
        (event,) = structured({**REQUIRED, **given_data})
        assert event.data == data

    def test_data_without_a_type_is_json_and_says_so(self) -> None:
        (event,) = structured({**REQUIRED, "data": 1})
        assert event.attributes["datacontenttype"] == "application/json"

    def test_null_attributes_are_absent(self) -> None:
        assert structured({**REQUIRED, "subject": None}) == [CloudEvent(REQUIRED)]

    @pytest.mark.parametrize(
        ("change", "complaint"),
        [
            ({"specversion": "0.3"}, "/0/specversion: must be '1.0'"),
            ({"id": None}, "/0/id: required attribute 'id' not found"),
            ({"id": ""}, "/0/id: must not be empty"),
            ({"id": 7}, "/0/id: integer found, string expected"),
            ({"source": "not a uri"}, "/0/source: not a URI reference"),
            ({"type": "line\nbreak"}, "/0/type: must not contain control characters"),
            ({"time": "yesterday"}, "/0/time: not a time"),
            ({"time": "2026-02-30T00:00:00Z"}, "/0/time: not a time"),
            ({"time": "2026-02-01T00:00:00"}, "/0/time: not a time with its offset"),
            ({"dataschema": "relative"}, "/0/dataschema: not an absolute URI"),
            ({"datacontenttype": "json"}, "/0/datacontenttype: not a media type"),
            ({"partitionkey": ""}, "/0/partitionkey: must not be empty"),
            ({"myExtension": "x"}, "/0/myExtension: not the name of an attribute"),
            ({"a/b": "x"}, "/0/a~1b: not the name of an attribute"),
            ({"nested": {}}, "/0/nested: object found, string, integer or boolean expected"),
            ({"fraction": 1.5}, "/0/fraction: number found, string, integer or boolean expected"),
            ({"large": 2**31}, "/0/large: an integer of an event has 32 bits"),
            ({"data": 1, "data_base64": "AA=="}, "/0/data_base64: data and data_base64 exclude each other"),
            ({"data_base64": "*"}, "/0/data_base64: not base64"),
            ({"data_base64": 1}, "/0/data_base64: integer found, base64 text expected"),
            ({"data": 1, "datacontenttype": "text/plain"}, "/0/data: integer found, text of type text/plain expected"),
            ({"data": "x", "datacontenttype": "text/plain;charset=no"}, "/0/data: cannot be written as text/plain"),
        ],
    )
    def test_what_is_no_event_is_refused_with_the_place(self, change: dict[str, Any], complaint: str) -> None:
        with pytest.raises(Fault) as refusal:
            structured({**REQUIRED, **change})
        assert refusal.value.description.startswith(f"Schema Validation Error - {complaint}")

    def test_all_that_is_wrong_with_a_batch_is_said_at_once(self) -> None:
        with pytest.raises(Fault) as refusal:
            structured(REQUIRED, {**REQUIRED, "id": "", "time": "now"}, 5)
        assert refusal.value.metadata is not None
        errors: Any = refusal.value.metadata["errors"]
        assert [error["pointer"] for error in errors] == ["/1/id", "/1/time", "/2"]


class TestOverHttp:
    def test_binary_mode_takes_attributes_from_headers_and_passes_data_untouched(self) -> None:
        body = b'{ "n": 1.50 }'
        event = binary(
            body, content_type="application/json; charset=utf-8", ce_subject="Euro%20%E2%82%AC%20%F0%9F%98%80"
        )
        assert event.attributes["subject"] == "Euro € 😀"
        assert event.attributes["datacontenttype"] == "application/json; charset=utf-8"
        assert event.data == body

    @pytest.mark.parametrize(
        ("header", "attribute"),
        [('"a \\"quoted\\" one"', 'a "quoted" one'), ("%41", "A"), ("100%25", "100%"), ("%2525", "%25")],
    )
    def test_a_header_is_unquoted_and_decoded_once(self, header: str, attribute: str) -> None:
        assert binary(ce_subject=header).attributes["subject"] == attribute

    def test_an_empty_body_is_no_data(self) -> None:
        assert binary().data is None

    @pytest.mark.parametrize(
        ("headers", "complaint"),
        [
            ({"ce_id": "%C0%A0"}, "/ce-id: its percent-encoding is no UTF-8"),
            ({"ce_id": "ä"}, "/ce-id: must be ASCII"),
            ({"ce_time": "now"}, "/ce-time: not a time"),
            ({"ce_my_extension": "x"}, "/ce-my-extension: not the name of an attribute"),
            ({"ce_datacontenttype": "text/plain"}, "/ce-datacontenttype: datacontenttype is the header Content-Type"),
            ({"content_type": "nonsense"}, "/content-type: not a media type"),
        ],
    )
    def test_headers_that_make_no_event_are_named(self, headers: dict[str, str], complaint: str) -> None:
        with pytest.raises(Fault) as refusal:
            binary(b"", **headers)
        assert refusal.value.description.startswith(f"Schema Validation Error - {complaint}")

    def test_required_headers_that_lack_are_named(self) -> None:
        with pytest.raises(Fault, match="/ce-id: required attribute 'id' not found"):
            events_of(request(ce_specversion="1.0"), b"")

    def test_a_format_that_nobody_reads_here_is_refused(self) -> None:
        with pytest.raises(Fault, match="application/cloudevents\\+avro") as refusal:
            events_of(request(content_type="application/cloudevents+avro"), b"")
        assert refusal.value.kind is FaultKind.CONTENT_TYPE_MISMATCH

    @pytest.mark.parametrize(
        ("headers", "expected"),
        [
            ({"content_type": "application/json"}, False),
            ({"content_type": "application/json", "ce_specversion": "1.0"}, True),
            ({"content_type": "Application/CloudEvents+JSON; charset=UTF-8"}, True),
            ({"content_type": "application/cloudevents-batch+json"}, True),
            ({}, False),
        ],
    )
    def test_the_mode_is_told_by_headers(self, headers: dict[str, str], expected: bool) -> None:
        assert carries_events(request(**headers).headers) is expected

    @pytest.mark.parametrize(("asked", "value"), [({}, None), ({"contentMode": "structured"}, b"{")])
    def test_how_kafka_gets_it_is_asked_by_the_query(self, asked: dict[str, str], value: bytes | None) -> None:
        given = request(content_type="application/cloudevents+json")
        given.scope["parameters"] = asked
        (made,) = event_records(given, json_text.dumps(REQUIRED), HeaderWriter(RequestHeaders()))
        assert (made.value and made.value[:1]) == value

    def test_requests_that_differ_in_their_headers_only_are_told_apart(self) -> None:
        """An Idempotency-Key belongs to one of them."""

        def said(**headers: str) -> bytes:
            given = request(**headers)
            given.scope["parameters"] = {}
            return said_beside_body(given)

        first = said(ce_specversion="1.0", ce_id="1", x_other="a")
        assert first == said(ce_id="1", x_other="b", ce_specversion="1.0")
        assert first != said(ce_specversion="1.0", ce_id="2")
        assert said(content_type="application/json") == b""

    def test_the_sdk_writes_what_we_read(self) -> None:
        written = SdkEvent({**REQUIRED, "subject": "50 % “off”"}, {"n": 1})
        message = http.to_binary_event(written)
        (event,) = events_of(request(**message.headers), message.body)
        assert event.attributes["subject"] == "50 % “off”"
        assert event.data == message.body


class TestInKafka:
    def test_binary_mode_puts_attributes_into_headers_and_data_into_the_value(self) -> None:
        (event,) = structured({**REQUIRED, "data": {"n": 1}, "sampled": True, "rate": 5, "partitionkey": "k"})
        made = record(event, correlation_id="c")
        assert made.key == b"k"
        assert made.value == b'{"n":1}'
        assert headers_of(made) == [
            ("X-Correlation-Id", b"c"),
            ("ce_specversion", b"1.0"),
            ("ce_id", b"1"),
            ("ce_source", b"/shop"),
            ("ce_type", b"order.placed"),
            ("ce_sampled", b"true"),
            ("ce_rate", b"5"),
            ("ce_partitionkey", b"k"),
            ("content-type", b"application/json"),
        ]

    def test_structured_mode_puts_all_into_the_value(self) -> None:
        (event,) = structured({**REQUIRED, "data": {"n": 1}, "partitionkey": "k", "rate": 5})
        made = record(event, ContentMode.STRUCTURED, correlation_id="c")
        assert made.key == b"k"
        assert headers_of(made) == [
            ("X-Correlation-Id", b"c"),
            ("content-type", b"application/cloudevents+json; charset=UTF-8"),
        ]
        assert orjson.loads(made.value or b"") == {
            **REQUIRED,
            "partitionkey": "k",
            "rate": 5,
            "datacontenttype": "application/json",
            "data": {"n": 1},
        }

    def test_an_event_without_data_is_a_tombstone_in_binary_mode_only(self) -> None:
        assert record(CloudEvent(REQUIRED)).value is None
        assert record(CloudEvent(REQUIRED), ContentMode.STRUCTURED).value is not None

    def test_the_events_trace_is_the_records_and_wins_over_the_requests(self) -> None:
        others = Trace("00-11111111111111111111111111111111-1111111111111111-01", "a=b")
        (traced, untraced) = structured({**REQUIRED, "traceparent": PARENT}, {**REQUIRED, "traceparent": "nonsense"})
        own = dict(headers_of(record(traced, trace=others)))
        assert (own["traceparent"], own.get("tracestate")) == (PARENT.encode(), None)
        assert own["ce_traceparent"] == PARENT.encode()
        assert dict(headers_of(record(untraced, trace=others)))["traceparent"] == others.parent.encode()

    @pytest.mark.parametrize("mode", ContentMode)
    @pytest.mark.parametrize(
        "data",
        [
            {"data": {"n": 1}},
            {"data": "<a/>", "datacontenttype": "application/xml"},
            {"data_base64": base64.b64encode(b"\x89PNG\xff").decode(), "datacontenttype": "image/png"},
            {},
        ],
    )
    def test_what_was_sent_is_what_is_read_by_us_and_by_the_sdk(self, mode: ContentMode, data: dict[str, Any]) -> None:
        given = {**REQUIRED, "time": "2026-01-02T03:04:05.123456789Z", "subject": "ü", "partitionkey": "k", **data}
        (event,) = structured(given)
        made = record(event, mode)
        implied = {"datacontenttype": "application/json"} if data == {"data": {"n": 1}} else {}
        assert shown_again(made) == {**given, **implied}
        read = as_read_by_the_sdk(made)
        assert (read.get_id(), read.get_subject(), read.get_extension("partitionkey")) == ("1", "ü", "k")
        assert read.get_data() == (b"\x89PNG\xff" if "data_base64" in data else data.get("data"))

    def test_what_the_sdk_wrote_is_read(self) -> None:
        for write in (kafka.to_binary_event, kafka.to_structured_event):
            message = write(SdkEvent({**REQUIRED, "subject": "s"}, {"n": 1}))
            event: Any = orjson.loads(orjson.dumps(event_in(list(message.headers.items()), message.value)))
            assert (event["subject"], event["data"]) == ("s", {"n": 1})

    @pytest.mark.parametrize("charset", ["undefined", "unicode_escape", "utf-7", "idna", "hex"])
    def test_what_only_python_takes_for_a_charset_is_none(self, charset: str) -> None:
        """Readers would never get past such a record."""
        content_type = f"text/plain; charset={charset}"
        event = CloudEvent({**REQUIRED, "datacontenttype": content_type}, b"+2AA-\\ud800")
        assert json_text.loads(json_text.dumps(cloud_event.to_json(event)))["data_base64"]
        with pytest.raises(Fault, match="unknown charset"):
            structured({**REQUIRED, "datacontenttype": content_type, "data": "x"})

    @given(st.binary(max_size=40), st.sampled_from(["application/json", "text/plain", "a/b", "text/x;charset=x", None]))
    def test_data_of_any_bytes_comes_back(self, data: bytes, content_type: str | None) -> None:
        attributes = REQUIRED if content_type is None else {**REQUIRED, "datacontenttype": content_type}
        shown = json_text.loads(json_text.dumps(cloud_event.to_json(CloudEvent(attributes, data))))
        if "data_base64" in shown:
            assert base64.b64decode(shown["data_base64"]) == data
        elif content_type == "text/plain":
            assert shown["data"].encode() == data
        else:
            assert shown["data"] == json_text.loads(data)

    @pytest.mark.parametrize(
        ("headers", "value"),
        [
            ([], b"{}"),
            ([("content-type", b"application/json")], b"{}"),
            ([("ce_specversion", b"1.0"), ("ce_id", b"1")], b"{}"),
            ([("ce_specversion", b"0.3"), ("ce_id", b"1"), ("ce_source", b"/"), ("ce_type", b"t")], b"{}"),
            ([("ce_specversion", b"1.0"), ("ce_id", b"\xff"), ("ce_source", b"/"), ("ce_type", b"t")], b"{}"),
            ([("content-type", b"application/cloudevents+json")], b"{}"),
            ([("content-type", b"application/cloudevents+json")], b"no json"),
            ([("content-type", b"application/cloudevents+json")], None),
            ([("content-type", b"application/cloudevents+avro")], b"{}"),
        ],
    )
    def test_other_records_are_no_events(self, headers: KafkaHeaders, value: bytes | None) -> None:
        assert event_in(headers, value) is None


class TestOtherRecords:
    def test_any_record_can_be_shown_as_an_event(self) -> None:
        headers = [("X-Trace.Id", b"t"), ("raw", b"\xff"), ("---", b"x"), ("nothing", None)]
        record = Consumed("apples", 2, 5, 1_700_000_000_123, None, {"n": 1}, headers, size=0)
        assert wrapped(record, b"alice", Format.JSON) == {
            "specversion": "1.0",
            "type": "kafka.mesh.record",
            "source": "/topics/apples",
            "id": "partition:2/offset:5",
            "subject": "partition:2#5",
            "time": "2023-11-14T22:13:20.123Z",
            "partitionkey": "alice",
            "kafkaheaderxtraceid": "t",
            "datacontenttype": "application/json",
            "data": {"n": 1},
        }

    @pytest.mark.parametrize(
        ("value", "format_", "data"),
        [
            ("AP8=", Format.BINARY, {"datacontenttype": "application/octet-stream", "data_base64": "AP8="}),
            ("text", Format.STRING, {"datacontenttype": "text/plain", "data": "text"}),
            ({"n": 1}, Format.AVRO, {"datacontenttype": "application/json", "data": {"n": 1}}),
            (None, Format.JSON, {}),
        ],
    )
    def test_its_data_is_what_its_format_shows(self, value: object, format_: Format, data: dict[str, object]) -> None:
        event: Any = wrapped(Consumed("apples", 0, 0, 0, None, value, [], size=0), None, format_)
        assert {name: event[name] for name in event if name.startswith("data")} == data

    @given(st.binary(max_size=8), st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), max_size=4))
    def test_whatever_a_record_holds_its_event_is_valid(
        self, key: bytes, headers: list[tuple[str, bytes | None]]
    ) -> None:
        event = wrapped(Consumed("apples", 0, 0, -1, None, None, headers, size=0), key, Format.JSON)
        assert isinstance(cloud_event.from_json(event), CloudEvent)

    @pytest.mark.parametrize("timestamp", [253_402_300_800_000, 2**63 - 1, -1])
    def test_a_time_that_events_cannot_say_is_left_out(self, timestamp: int) -> None:
        event: Any = wrapped(Consumed("apples", 0, 0, timestamp, None, 1, [], size=0), None, Format.JSON)
        assert "time" not in event

    def test_integers_of_any_length_reach_the_reader(self) -> None:
        record = Consumed("apples", 0, 0, 0, None, 10**30, [], size=0)
        batch = event_batch([record._replace(value=wrapped(record, None, Format.AVRO))])
        assert json_text.loads(batch)[0]["data"] == 10**30
