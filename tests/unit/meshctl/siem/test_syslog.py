"""Messages and addresses of syslog, and a sender whose receiver goes away and comes back."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from meshctl.siem.syslog import MOST_UDP_BYTES, Receiver, Sender, Transport, framed, message, receiver_of
from meshctl.siem.targets import FileTarget
from tests.fixtures.certificates import Authority

RFC_5424 = re.compile(
    rb"<(?P<pri>\d{1,3})>1 (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<host>[!-~]{1,255}) "
    rb"(?P<app>[!-~]{1,48}) (?P<process>[!-~]{1,128}) (?P<id>[!-~]{1,32}) - \xef\xbb\xbf(?P<text>.*)",
    re.DOTALL,
)
"""The grammar of RFC 5424, section 6, without structured data."""
WITHIN_S = 30.0


def test_a_message_has_the_form_of_the_rfc() -> None:
    found = RFC_5424.fullmatch(message('{"a": "grün"}', 1_795_953_600_123, 3, "till 1", "SetRule" * 9))
    assert found is not None
    assert int(found["pri"]) == 13 * 8 + 4, "log audit, warning"
    assert found["time"] == b"2026-11-29T12:00:00.123Z"
    assert found["host"] == b"till1"
    assert len(found["id"]) == 32
    assert found["text"].decode() == '{"a": "grün"}'
    assert message("", 0, 99, "", "").startswith(b"<109>1 1970-01-01T00:00:00.000Z - kafka-mesh - - - ")
    assert framed(b"hello") == b"5 hello"


@pytest.mark.parametrize(
    ("text", "receiver"),
    [
        ("syslog+tls://siem.example.com", Receiver(Transport.TLS, "siem.example.com", 6514)),
        ("syslog+tcp://10.0.0.1:1601", Receiver(Transport.TCP, "10.0.0.1", 1601)),
        ("syslog+udp://[::1]:514", Receiver(Transport.UDP, "::1", 514)),
        ("syslog+udp://[::1]", Receiver(Transport.UDP, "::1", 514)),
        ("audit.jsonl", None),
        ("/var/log/audit.jsonl", None),
    ],
)
def test_an_address_names_transport_host_and_port(text: str, receiver: Receiver | None) -> None:
    assert receiver_of(text) == receiver


@pytest.mark.parametrize("text", ["syslog://siem", "syslog+tcp://", "syslog+tcp://:5", "syslog+tcp://siem:0x"])
def test_a_wrong_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"none of|no host|no port"):
        receiver_of(text)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(WITHIN_S)
        yield made


def receiver(listener: socket.socket, transport: Transport = Transport.TCP) -> Receiver:
    return Receiver(transport, "127.0.0.1", listener.getsockname()[1])


def test_a_receiver_that_went_away_is_connected_again(listener: socket.socket) -> None:
    with closing(Sender(receiver(listener), None)) as sender:
        sender.send(b"one")
        first, _ = listener.accept()
        with first:
            assert first.recv(100) == b"3 one"
        sender.send(b"two")
        second, _ = listener.accept()
        with second:
            assert second.recv(100) == b"3 two", "nothing is lost in the connection that was closed"


def test_a_receiver_by_tls_is_verified(listener: socket.socket, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign("siem")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(signed.certificate, signed.key)
    received: list[bytes] = []

    def serve() -> None:
        for _ in range(2):
            accepted, _ = listener.accept()
            try:
                with server.wrap_socket(accepted, server_side=True) as connection:
                    received.append(connection.recv(100))
            except ssl.SSLError:
                received.append(b"refused")

    thread = threading.Thread(target=serve)
    thread.start()
    doubting = Sender(receiver(listener, Transport.TLS), ssl.create_default_context())
    with closing(doubting), pytest.raises(ssl.SSLCertVerificationError):
        doubting.send(b"one")
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with closing(Sender(receiver(listener, Transport.TLS), trusting)) as sender:
        sender.send(b"one")
        thread.join(WITHIN_S)
    assert received == [b"refused", b"3 one"]


def test_a_datagram_has_a_bound() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))
        there.settimeout(WITHIN_S)
        with closing(Sender(Receiver(Transport.UDP, *there.getsockname()), None)) as sender:
            sender.send(b"one")
            assert there.recv(100) == b"one", "one message, without a frame"
            with pytest.raises(OSError, match="use TCP or TLS"):
                sender.send(b"x" * (MOST_UDP_BYTES + 1))


def test_a_file_that_was_rotated_is_made_anew(tmp_path: Path) -> None:
    place = tmp_path / "audit.jsonl"
    target = FileTarget(place)
    target.send({"a": 1})
    place.rename(tmp_path / "audit.jsonl.1")
    target.send({"a": 2})
    target.flush()
    target.close()
    assert (tmp_path / "audit.jsonl.1").read_text() == '{"a":1}\n'
    assert place.read_text() == '{"a":2}\n'
