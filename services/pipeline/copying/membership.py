"""What a transaction says of the group whose offsets it commits, where nobody is a member of that group.

Only a consumer hands that out (`consumer_group_metadata`), as bytes that `send_offsets_to_transaction` takes. Here no
consumer is made for it: it would look for its coordinator, in threads of its own, and be closed in that very moment;
a driver has crashed inside librdkafka so (`rd_kafka_cgrp_op`). The bytes are those of
`rd_kafka_consumer_group_metadata_write`; a librdkafka that has others refuses these, and a test compares them.
"""

from __future__ import annotations

import struct

MAGIC = b"CGMDv2:"
NO_GENERATION = -1
NO_INSTANCE = b"\x01"


def nobody_of(group: str) -> bytes:
    """For `send_offsets_to_transaction`: the group, without generation, member and instance."""
    return MAGIC + struct.pack("=i", NO_GENERATION) + group.encode() + b"\0" + b"\0" + NO_INSTANCE
