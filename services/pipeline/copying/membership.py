"""The group metadata of a transaction that commits offsets of a group without members.

Only a consumer returns this metadata (`consumer_group_metadata`), as bytes that `send_offsets_to_transaction` takes.
This module makes no consumer for it. A consumer would look for its coordinator in threads of its own, and would be
closed at the same moment. This has crashed a driver inside librdkafka (`rd_kafka_cgrp_op`). The bytes have the format
of `rd_kafka_consumer_group_metadata_write`. A librdkafka with another format refuses these bytes, and a test compares
them.
"""

from __future__ import annotations

import struct

MAGIC = b"CGMDv2:"
NO_GENERATION = -1
NO_INSTANCE = b"\x01"


def nobody_of(group: str) -> bytes:
    """The metadata for `send_offsets_to_transaction`: the group, without generation, member and instance."""
    return MAGIC + struct.pack("=i", NO_GENERATION) + group.encode() + b"\0" + b"\0" + NO_INSTANCE
