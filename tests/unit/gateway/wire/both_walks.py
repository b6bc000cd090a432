"""The walks as Python and compiled: what holds for one holds for the other."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from types import ModuleType

import pytest

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.scanner import running
from services.gateway.wire.scanner.walks import fetch_request, fetch_response, headers, produce, produce_response


@dataclass(frozen=True)
class Walks:
    parse_request_header: Callable[[Buffer, int, int], headers.RequestHeader]
    parse_response_header: Callable[[Buffer, int, int, int, int], headers.ResponseHeader]
    scan_produce: Callable[[Buffer, int, int, int], produce.ProduceScan]
    first_headers: Callable[[Buffer, produce.ProduceScan], bytes | None]
    count_produced: Callable[[Buffer, produce.ProduceScan], produce.Produced]
    led_by: Callable[[produce.ProduceTopic, tuple[int | None, ...]], int | None]
    sole_records: Callable[[Buffer, int, int], tuple[int, int] | None]
    scan_fetch_request: Callable[[Buffer, int, int, int], fetch_request.FetchRequestScan]
    scan_fetch_response: Callable[[Buffer, int, int, int], fetch_response.FetchResponseScan]
    produce_response_is_clean: Callable[[Buffer, int, int, int], bool]
    topics_of_clean_response: Callable[[Buffer, int, int, int], list[produce_response.AnsweredTopic] | None]


SOURCES = (headers, produce, fetch_request, fetch_response, produce_response)


def _walks(modules: list[ModuleType]) -> Walks:
    names = [field.name for field in fields(Walks)]
    return Walks(*(next(getattr(module, name) for module in modules if hasattr(module, name)) for name in names))


PYTHON = _walks(list(SOURCES))
COMPILED: Walks = PYTHON
if running.WHY_NOT_COMPILED is None:
    COMPILED = _walks([import_module(running.compiled(source)) for source in SOURCES])

is_compiled = pytest.mark.skipif(running.WHY_NOT_COMPILED is not None, reason=str(running.WHY_NOT_COMPILED))
both = pytest.mark.parametrize(
    "walks", [pytest.param(PYTHON, id="python"), pytest.param(COMPILED, id="compiled", marks=is_compiled)]
)
