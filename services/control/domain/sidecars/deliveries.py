"""Checks of a reactive consumer's delivery settings, when its sidecar reports them and when a command changes them."""

from __future__ import annotations

import re
from collections.abc import Collection

from mesh.record_expressions import InvalidExpressionError, check_expression
from mesh.rpc import events
from services.control.domain.errors import InvalidField

FIELDS = tuple(events.DeliverySettings.DESCRIPTOR.fields_by_name)
MAX_ROUTES = 100
LONGEST_URL = 2_000
_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]]+)(:\d{1,5})?/?")
_PATH = re.compile(r"/[!-~]*")
_LIMITS = {
    "max_concurrency": 1_000,
    "max_batch_records": 100_000,
    "max_batch_bytes": 64 * 1024 * 1024,
}
LONGEST_LINGER_MS = 60_000


def check_delivery(where: str, delivery: events.DeliverySettings, fields: Collection[str]) -> None:
    """InvalidField unless a sidecar can deliver by these fields."""
    for field in fields:
        match field:
            case "backend_url":
                _check_url(f"{where}.{field}", delivery.backend_url)
            case "backend_path":
                _check_path(f"{where}.{field}", delivery.backend_path)
            case "linger_ms":
                _check_within(f"{where}.{field}", delivery.linger_ms, 0, LONGEST_LINGER_MS)
            case "filter":
                if delivery.filter:
                    _check_expression(f"{where}.{field}", delivery.filter)
            case "routes":
                _check_routes(f"{where}.{field}", delivery.routes)
            case "order_by_key":
                pass
            case _:
                _check_within(f"{where}.{field}", getattr(delivery, field), 1, _LIMITS[field])


def check_mask(where: str, paths: Collection[str]) -> None:
    """InvalidField for a path that is no field of DeliverySettings."""
    for path in paths:
        if path not in FIELDS:
            raise InvalidField(where, f"{path!r} is no field of a delivery; it has {', '.join(FIELDS)}")


def _check_routes(where: str, routes: Collection[events.DeliveryRoute]) -> None:
    if len(routes) > MAX_ROUTES:
        raise InvalidField(where, f"{len(routes)} are more than {MAX_ROUTES}")
    for place, route in enumerate(routes):
        if not route.when:
            raise InvalidField(f"{where}[{place}].when", "is empty; what no route takes goes to backend_path anyway")
        _check_expression(f"{where}[{place}].when", route.when)
        _check_path(f"{where}[{place}].path", route.path)


def _check_url(where: str, url: str) -> None:
    if problem := _problem_of_url(url):
        raise InvalidField(where, f"{problem}; expected scheme, host and port, no path: http://127.0.0.1:8081")


def _problem_of_url(url: str) -> str:
    """The problem of a URL; the text leaves out the URL where it may hold a password."""
    if len(url) > LONGEST_URL:
        return f"has more than {LONGEST_URL} characters"
    if "@" in url:
        return "names a user; credentials have settings of their own, for this is written into the log"
    if not _URL.fullmatch(url):
        return f"{url!r} is no address of a backend"
    return ""


def _check_path(where: str, path: str) -> None:
    if len(path) > LONGEST_URL or not _PATH.fullmatch(path):
        raise InvalidField(where, f"{path[:100]!r} is no path; it begins with / and has no blanks: /kafka/records")


def _check_within(where: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise InvalidField(where, f"{number} is not from {least} to {most}")


def _check_expression(where: str, expression: str) -> None:
    try:
        check_expression(expression)
    except InvalidExpressionError as error:
        raise InvalidField(where, str(error)) from None
