"""The walks as Python and compiled: what holds for one holds for the other."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from types import ModuleType

import pytest

from services.gateway import WHY_NOT_COMPILED
from services.gateway.copies import Copy
from services.gateway.wire.primitives import Buffer
from services.gateway.wire.scanner import walks as running
from services.gateway.wire.scanner.walks import fetch_request, fetch_response, headers, produce, produce_response


@dataclass(frozen=True)
class Walks:
    parse_request_header: Callable[[Buffer, int, int], headers.RequestHeader]
    parse_response_header: Callable[[Buffer, int, int, int, int], headers.ResponseHeader]
    int32_at: Callable[[Buffer, int], int]
    patch_correlation_id: Callable[[bytearray | memoryview, int, int], None]
    scan_produce: Callable[[Buffer, int, int, int], produce.ProduceScan]
    first_headers: Callable[[Buffer, produce.ProduceScan], bytes | None]
    led_by: Callable[[produce.ProduceTopic, tuple[int | None, ...]], int | None]
    scan_produce_beginning: Callable[[Buffer, int, int, int, int], produce.ProduceScan | None]
    scan_fetch_request: Callable[[Buffer, int, int, int], fetch_request.FetchRequestScan]
    scan_fetch_response: Callable[[Buffer, int, int, int], fetch_response.FetchResponseScan]
    produce_response_is_clean: Callable[[Buffer, int, int, int], bool]
    base_offsets: Callable[[Buffer, int, int, int], dict[tuple[bytes, int], int]]
    topics_of_clean_response: Callable[[Buffer, int, int, int], list[produce_response.AnsweredTopic] | None]


RUNNING = (headers, produce, fetch_request, fetch_response, produce_response)


def _sources() -> list[ModuleType]:
    """The walks as Python, whatever runs."""
    package = running.__name__
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(package)}
    finders, sys.meta_path = sys.meta_path, [finder for finder in sys.meta_path if not isinstance(finder, Copy)]
    try:
        return [import_module(module.__name__) for module in RUNNING]
    finally:
        sys.meta_path = finders
        sys.modules.update(kept)
        sys.modules[package.rpartition(".")[0]].__dict__["walks"] = running


def _walks(modules: list[ModuleType]) -> Walks:
    names = [field.name for field in fields(Walks)]
    return Walks(*(next(getattr(module, name) for module in modules if hasattr(module, name)) for name in names))


COMPILED = _walks(list(RUNNING))
PYTHON = COMPILED if WHY_NOT_COMPILED else _walks(_sources())

is_compiled = pytest.mark.skipif(WHY_NOT_COMPILED is not None, reason=str(WHY_NOT_COMPILED))
both = pytest.mark.parametrize(
    "walks", [pytest.param(PYTHON, id="python"), pytest.param(COMPILED, id="compiled", marks=is_compiled)]
)
