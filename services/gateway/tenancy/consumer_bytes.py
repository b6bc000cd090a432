"""Names of topics in the bytes that classic consumers hand each other by JoinGroup and SyncGroup.

A coordinator passes these bytes on unread. Bytes that are no subscription or assignment stay as they are: other kinds
of members (Connect's workers) have protocols of their own. So do the bytes of an assignor inside (`user_data`): its
members write their own names there, and read them.
"""

from __future__ import annotations

from typing import Final

from services.gateway.wire.codec import decode_prefix, encode
from services.gateway.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from services.gateway.wire.primitives import INT16, Buffer, WireError, read_int16
from services.gateway.wire.renaming import Renames, renamed
from services.gateway.wire.schema import spec_of

CONSUMER: Final = "consumer"
"""The protocol type of consumers."""
Known = type[ConsumerProtocolAssignment] | type[ConsumerProtocolSubscription]


def subscription(metadata: Buffer, renames: Renames) -> Buffer:
    return _renamed(ConsumerProtocolSubscription, metadata, renames)


def assignment(assigned: Buffer, renames: Renames, *, is_certain: bool = True) -> Buffer:
    """`is_certain`: the group's protocol is that of consumers. Else bytes count only if they are nothing else."""
    return _renamed(ConsumerProtocolAssignment, assigned, renames, is_certain=is_certain)


def _renamed(cls: Known, read: Buffer, renames: Renames, *, is_certain: bool = True) -> Buffer:
    try:
        version, position = read_int16(read, 0, len(read), cls.__name__)
        newest = spec_of(cls).versions[1]
        known = min(version, newest)
        message, end = decode_prefix(cls, known, read, position)
    except WireError:
        return read
    if not is_certain and (version > newest or end != len(read)):
        return read
    found = renamed(message, renames)
    if found is message:
        return read
    return INT16.pack(version) + encode(found, known) + bytes(read[end:])
