"""What the codec promises beyond the layout: null and absent fields, unknown tags, exact ends, honest errors."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.gateway.wire.codec import decode, encode, source
from services.gateway.wire.messages import (
    ApiVersionsResponse,
    DescribeGroupsResponse,
    FetchRequest,
    HeartbeatRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from services.gateway.wire.messages.consumer_protocol import ConsumerProtocolSubscription, subscription_of
from services.gateway.wire.messages.fetch import ReplicaState
from services.gateway.wire.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from services.gateway.wire.primitives import UnsupportedVersionError, WireError
from services.gateway.wire.schema import Kind, MessageSpec, message_of
from tests.fixtures.sweeps import ends
from tests.unit.gateway.wire.strategies import every_version, message_id, structs


@pytest.mark.parametrize(("spec", "version"), ends(every_version()), ids=message_id)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_is_read_again(spec: MessageSpec, version: int, data: st.DataObject) -> None:
    message = data.draw(structs(spec.cls, version, unknown_tags=spec.is_flexible(version)))
    assert decode(spec.cls, version, encode(message, version)) == message


def test_known_bytes_of_a_metadata_request() -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="apples")])
    assert encode(asked, 0).hex() == "00000001" + "0006" + b"apples".hex()
    assert encode(asked, 9).hex() == "02" + "07" + b"apples".hex() + "00" + "01" + "00" + "00" + "00"


def test_all_topics_are_null_from_version_1_and_cannot_be_said_before() -> None:
    assert decode(MetadataRequest, 1, encode(MetadataRequest(topics=None), 1)).topics is None
    with pytest.raises(WireError, match=r"MetadataRequest\.topics \(v0\)"):
        encode(MetadataRequest(topics=None), 0)


def test_a_field_that_the_version_lacks_takes_its_default() -> None:
    decoded = decode(MetadataResponse, 0, encode(MetadataResponse(), 0))
    assert (decoded.controller_id, decoded.cluster_id, decoded.cluster_authorized_operations) == (-1, None, -(2**31))


def test_an_ignorable_field_is_left_out_and_another_is_refused() -> None:
    topic = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(leader_epoch=7)])
    older = decode(MetadataResponse, 1, encode(MetadataResponse(topics=[topic]), 1))
    assert older.topics[0].partitions[0].leader_epoch == -1

    with pytest.raises(WireError, match=r"HeartbeatRequest\.group_instance_id \(v2\).*set to 'static'"):
        encode(HeartbeatRequest(group_instance_id="static"), 2)


def test_records_are_slices_of_the_buffer() -> None:
    produce = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"abc")])]
    )
    buffer = bytearray(encode(produce, 9))
    records = decode(ProduceRequest, 9, buffer).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"abc")] = ord("x")
    assert bytes(records) == b"xbc"


def test_a_message_is_read_where_it_lies() -> None:
    body = encode(MetadataRequest(topics=None), 4)
    assert decode(MetadataRequest, 4, b"head" + body + b"tail", 4, 4 + len(body)).topics is None


def test_tagged_fields_are_written_only_when_set() -> None:
    assert b"\x01\x0c" not in encode(FetchRequest(), 15)
    set_state = FetchRequest(replica_state=ReplicaState(replica_id=4))
    assert decode(FetchRequest, 15, encode(set_state, 15)) == set_state


def test_tags_of_a_future_kafka_are_kept_and_sent_on() -> None:
    reply = ApiVersionsResponse(unknown_tags={9: b"later"})
    decoded = decode(ApiVersionsResponse, 3, encode(reply, 3))
    assert decoded.unknown_tags == {9: b"later"}
    with pytest.raises(WireError, match="version 0 carries no tagged fields"):
        encode(decoded, 0)


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        ("7fffffff", "elements of at least 2 bytes exceed the 0 bytes left"),
        ("ffffffff", "null"),
        ("fffffffe", "negative count"),
        ("00000001" + "7fff" + "61", "length 32767 exceeds the 1 bytes left"),
        ("00000001" + "0001" + "ff", "not UTF-8"),
        ("00000001" + "ffff", "null"),
        ("0000", "needs 4 bytes, 2 left"),
        ("00000000" + "00", "1 bytes follow the end"),
    ],
)
def test_wrong_bytes_are_named(body: str, fact: str) -> None:
    with pytest.raises(WireError, match=fact) as caught:
        decode(MetadataRequest, 0, bytes.fromhex(body))
    assert "MetadataRequest" in caught.value.field
    assert 0 <= caught.value.offset <= len(body) // 2


def test_a_varint_that_never_ends_is_refused() -> None:
    with pytest.raises(WireError, match="does not fit 32 bits"):
        decode(MetadataRequest, 9, b"\xff" * 20)


def test_tagged_fields_must_fill_the_size_they_claim() -> None:
    body = bytearray(encode(FetchRequest(replica_state=ReplicaState(replica_id=4)), 15))
    body[-14] += 1  # the tag's size: 13 bytes are there
    with pytest.raises(WireError):
        decode(FetchRequest, 15, body)


def test_one_message_holds_a_bounded_number_of_elements() -> None:
    many = encode(MetadataRequest(topics=[MetadataRequestTopic(name="")] * 50), 1)
    with pytest.raises(WireError, match="more than one message may hold"):
        decode(MetadataRequest, 1, many, max_elements=49)


def test_an_unknown_version_says_which_are_known() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"version 99 does not exist \(known: 0-13\)"):
        encode(MetadataRequest(), 99)


@pytest.mark.parametrize("port", [1 << 31, "9092"])
def test_a_value_that_does_not_fit_is_a_wire_error(port: object) -> None:
    topic = MetadataResponseTopic(partitions=[MetadataResponsePartition(leader_id=port)])  # type: ignore[arg-type]
    with pytest.raises(WireError, match=r"MetadataResponse: a value does not fit its type in v9"):
        encode(MetadataResponse(topics=[topic]), 9)


def test_messages_are_found_by_key() -> None:
    found = message_of(15, Kind.RESPONSE)
    assert found is not None
    assert found.cls is DescribeGroupsResponse
    assert message_of(9999, Kind.REQUEST) is None


def test_the_compiled_source_can_be_read() -> None:
    assert "def read(view, at, end, budget):" in source(MetadataRequest, 9)


def test_a_subscription_of_a_newer_consumer_is_read_as_far_as_we_know_it() -> None:
    body = encode(ConsumerProtocolSubscription(topics=["apples", "pears"], rack_id="r1"), 3)
    assert subscription_of(b"\x00\x09" + body + b"what came later").topics == ["apples", "pears"]
    assert subscription_of(b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=["a"]), 0)).topics == ["a"]
    with pytest.raises(WireError):
        subscription_of(b"connect worker")
