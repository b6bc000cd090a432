"""The hot path: finds the offsets of fields in Produce and Fetch without decoding, copying or opening records.

A scan walks a request or response once and notes offsets into the caller's buffer. The notes serve three purposes: to
decide (names, partitions, acks), to patch in place (a correlation id, a wait time), and to cut. For example,
`split_produce` builds smaller requests from slices of a larger request, and `join_fetch_response` builds one answer
from entries of several.

Every scan checks bounds as `primitives` does, raises nothing but `WireError`, and must end exactly at `end`. Its
notes take memory in proportion to the partitions in the message, of which it takes `MAX_ENTRIES` at most.
"""

from services.gateway.wire.scanner.fetch_join import Entries, cut_entry, join_fetch_response, own_entry
from services.gateway.wire.scanner.produce_split import split_produce
from services.gateway.wire.scanner.walks.fetch_request import (
    FetchPartitionScan,
    FetchRequestScan,
    FetchTopicScan,
    scan_fetch_request,
)
from services.gateway.wire.scanner.walks.fetch_response import (
    FetchedPartition,
    FetchedTopic,
    FetchResponseScan,
    scan_fetch_response,
)
from services.gateway.wire.scanner.walks.headers import patch_correlation_id
from services.gateway.wire.scanner.walks.produce import (
    ProducePartition,
    ProduceScan,
    ProduceTopic,
    first_headers,
    led_by,
    scan_produce,
    scan_produce_beginning,
)

__all__ = [
    "Entries",
    "FetchPartitionScan",
    "FetchRequestScan",
    "FetchResponseScan",
    "FetchTopicScan",
    "FetchedPartition",
    "FetchedTopic",
    "ProducePartition",
    "ProduceScan",
    "ProduceTopic",
    "cut_entry",
    "first_headers",
    "join_fetch_response",
    "led_by",
    "own_entry",
    "patch_correlation_id",
    "scan_fetch_request",
    "scan_fetch_response",
    "scan_produce",
    "scan_produce_beginning",
    "split_produce",
]
