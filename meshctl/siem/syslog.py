"""Syslog messages for a SIEM: RFC 5424, over UDP (RFC 5426), TCP (RFC 6587, counted octets) or TLS (RFC 5425)."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

AUDIT_FACILITY: Final = 13
"""The facility "log audit" of RFC 5424."""
_SEVERITIES = {1: 6, 2: 5, 3: 4}
"""OCSF's severity_id -> syslog's: informational, notice, warning."""
APP_NAME: Final = "kafka-mesh"
CONNECT_S: Final = 10.0
SEND_S: Final = 30.0
MOST_UDP_BYTES: Final = 65_000
"""A datagram has room for 65,507 bytes; the rest is for headers of tunnels."""


class Transport(Enum):
    """The value is the scheme of the address."""

    UDP = "syslog+udp"
    TCP = "syslog+tcp"
    TLS = "syslog+tls"


PORTS = {Transport.UDP: 514, Transport.TCP: 601, Transport.TLS: 6514}


@dataclass(frozen=True, slots=True)
class Receiver:
    """The address of a receiver."""

    transport: Transport
    host: str
    port: int


def receiver_of(text: str) -> Receiver | None:
    """`syslog+tls://siem.example.com:6514`; None for a text of another form. ValueError names a wrong part."""
    scheme, separator, place = text.partition("://")
    if not separator or not scheme.startswith("syslog"):
        return None
    try:
        transport = Transport(scheme)
    except ValueError:
        raise ValueError(f"{scheme!r} is none of {', '.join(each.value for each in Transport)}") from None
    host, _, port = place.rpartition(":") if not place.endswith("]") and ":" in place else (place, "", "")
    if not host:
        raise ValueError(f"{text!r} names no host")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ValueError(f"{port!r} is no port")
    return Receiver(transport, host.strip("[]"), int(port) if port else PORTS[transport])


def message(text: str, time_ms: int, severity_id: int, host: str, message_id: str) -> bytes:
    """One message of RFC 5424; the text is UTF-8, with the byte order mark that the RFC asks for."""
    priority = AUDIT_FACILITY * 8 + _SEVERITIES.get(severity_id, 5)
    time = datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    head = f"<{priority}>1 {time}Z {_name(host, 255)} {APP_NAME} - {_name(message_id, 32)} - "
    return head.encode("ascii") + b"\xef\xbb\xbf" + text.encode()


def framed(sent: bytes) -> bytes:
    """Counted octets: the form for streams."""
    return b"%d %b" % (len(sent), sent)


def _name(text: str, most: int) -> str:
    printable = "".join(each for each in text if "!" <= each <= "~")
    return printable[:most] or "-"


class Sender:
    """A connection to a receiver. OSError when a message can't be sent; the next message connects again.

    Syslog has no acknowledgement: bytes that the receiver's machine took may be lost with it.
    """

    def __init__(self, receiver: Receiver, context: ssl.SSLContext | None) -> None:
        """`context`: for TLS."""
        self._receiver = receiver
        self._context = context
        self._socket: socket.socket | None = None

    def send(self, sent: bytes) -> None:
        try:
            connection = self._connected()
            if self._receiver.transport is Transport.UDP:
                if len(sent) > MOST_UDP_BYTES:
                    raise OSError(f"a message of {len(sent)} bytes does not fit into a datagram: use TCP or TLS")
                connection.send(sent)
            else:
                connection.sendall(framed(sent))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is not None and not self._is_gone(self._socket):
            return self._socket
        self.close()
        place = self._receiver.host, self._receiver.port
        if self._receiver.transport is Transport.UDP:
            family, kind, protocol, _, address = socket.getaddrinfo(*place, type=socket.SOCK_DGRAM)[0]
            made = socket.socket(family, kind, protocol)
            made.connect(address)
        else:
            made = socket.create_connection(place, CONNECT_S)
            if self._context is not None:
                made = self._context.wrap_socket(made, server_hostname=self._receiver.host)
        made.settimeout(SEND_S)
        self._socket = made
        return made

    def _is_gone(self, connection: socket.socket) -> bool:
        """A receiver says nothing: what can be read is the end of the connection."""
        if self._receiver.transport is Transport.UDP:
            return False
        connection.settimeout(0)
        try:
            return connection.recv(1) == b""
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        finally:
            connection.settimeout(SEND_S)
