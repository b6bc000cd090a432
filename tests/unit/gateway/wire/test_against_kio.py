"""Every message that we build, in every version that kio knows: kio reads the same, and writes the same bytes."""

import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.gateway.wire.codec import decode, encode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.schema import Kind, MessageSpec
from tests.fixtures.sweeps import ends
from tests.unit.gateway.wire.strategies import every_version, message_id, structs

kio_index = pytest.importorskip("kio.index", reason="kio is not installed")
kio_serial = pytest.importorskip("kio.serial")
kio_errors = pytest.importorskip("kio.schema.errors")


def kio_class(spec: MessageSpec, version: int) -> type | None:
    load = kio_index.load_request_schema if spec.kind is Kind.REQUEST else kio_index.load_response_schema
    try:
        found: type = load(spec.api_key, version)
    except kio_index.KioIndexError:
        return None
    return found


PAIRS = [
    (spec, version)
    for spec, version in every_version()
    if spec.api_key is not None and kio_class(spec, version) is not None
]


@pytest.mark.parametrize(("spec", "version"), ends(PAIRS), ids=message_id)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kio_reads_what_we_write_and_writes_what_we_read(spec: MessageSpec, version: int, data: st.DataObject) -> None:
    theirs = kio_class(spec, version)
    ours = data.draw(structs(spec.cls, version))
    encoded = encode(ours, version)

    read, size = kio_serial.entity_reader(theirs)(encoded, 0)
    assert size == len(encoded), "kio stopped before the end"
    written = io.BytesIO()
    kio_serial.entity_writer(theirs)(written, read)

    assert decode(spec.cls, version, written.getvalue()) == ours


def test_error_codes_are_those_of_kio_where_it_has_them() -> None:
    ours = {code.value: code.retriable for code in ErrorCode}
    for code in kio_errors.ErrorCode:
        assert ours[code.value] == code.retriable, code.name
