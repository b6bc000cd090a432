"""Format auto: what bytes are, where nobody says it."""

import orjson
import pytest

from services.sidecar.formats import Format, FormatError
from services.sidecar.formats.record_reader import RecordReader

READER = RecordReader()


@pytest.mark.parametrize(
    ("content", "label", "shown"),
    [
        (b'{"n": 1}', "json", {"n": 1}),
        (b"12", "json", 12),
        (b'"text"', "json", "text"),
        ("Grüße\tan\nalle".encode(), "string", "Grüße\tan\nalle"),
        (b"", "string", ""),
        (b"{broken", "string", "{broken"),
        (b"\xff\xfe", "binary", "//4="),
        (b"\x00\x00\x00\x00\x00\x00\x00\x2a", "binary", "AAAAAAAAACo="),
        (b"\x00\x00\x00\x00\x07payload", "binary", "AAAAAAdwYXlsb2Fk"),
    ],
)
def test_bytes_have_the_first_format_that_fits(content: bytes, label: str, shown: object) -> None:
    found, value = READER.detected("value", content, None)
    assert (found.label, orjson.loads(orjson.dumps(value))) == (label, shown)
    assert READER.shown(Format.AUTO, "value", content, None)[1] == label
    assert orjson.loads(orjson.dumps(READER.decode(Format.AUTO, "value", content, None))) == shown


def test_a_named_format_is_not_said_of_each_record() -> None:
    assert READER.shown(Format.STRING, "value", b"1", None) == ("1", "")
    assert READER.shown(Format.AUTO, "value", None, None) == (None, "")


def test_nothing_is_written_in_format_auto() -> None:
    assert Format.parse("Auto") is Format.AUTO
    with pytest.raises(FormatError, match="reads only"):
        Format.AUTO.codec.encode("x")
