"""The walks that run: the compiled copy, where the build could make one of these very sources, else the sources."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from services.gateway.wire.scanner.copies import COPIES, name_of_copy
from services.gateway.wire.scanner.walks import fetch_request, fetch_response, headers, produce, produce_response


def compiled(source: ModuleType) -> str:
    """The name of a walk's compiled module."""
    package, _, module = source.__name__.rpartition(".")
    return f"{package.rpartition('.')[0]}.{COPIES.name}.{_COPY}.{module}"


_COPY = name_of_copy()
WHY_NOT_COMPILED: str | None = None
"""Why the sources run, where they do."""
if not TYPE_CHECKING:
    _sources = (fetch_request, fetch_response, headers, produce, produce_response)
    if (COPIES / _COPY).is_dir():
        try:
            fetch_request, fetch_response, headers, produce, produce_response = map(
                import_module, map(compiled, _sources)
            )
        except ImportError as error:
            WHY_NOT_COMPILED = f"the compiled copy can't be loaded: {error}"
    else:
        _has_others = COPIES.is_dir() and any(COPIES.iterdir())
        WHY_NOT_COMPILED = "there are copies of other sources alone" if _has_others else "there is no compiled copy"

FetchPartitionScan = fetch_request.FetchPartitionScan
FetchRequestScan = fetch_request.FetchRequestScan
FetchTopicScan = fetch_request.FetchTopicScan
scan_fetch_request = fetch_request.scan_fetch_request

FetchResponseScan = fetch_response.FetchResponseScan
FetchedPartition = fetch_response.FetchedPartition
FetchedTopic = fetch_response.FetchedTopic
scan_fetch_response = fetch_response.scan_fetch_response

RequestHeader = headers.RequestHeader
ResponseHeader = headers.ResponseHeader
parse_request_header = headers.parse_request_header
parse_response_header = headers.parse_response_header

ProducePartition = produce.ProducePartition
ProduceScan = produce.ProduceScan
ProduceTopic = produce.ProduceTopic
scan_produce = produce.scan_produce
Produced = produce.Produced
count_produced = produce.count_produced
first_headers = produce.first_headers
led_by = produce.led_by
sole_records = produce.sole_records

produce_response_is_clean = produce_response.produce_response_is_clean
topics_of_clean_response = produce_response.topics_of_clean_response
