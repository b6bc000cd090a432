"""The orders of operators for a reactive consumer, kept for a restart. The settings hold for all other options."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson
import structlog

from services.sidecar.consuming.instance_values import Standing
from services.sidecar.delivering.routing import Route
from services.sidecar.reactive.options import NO_CHANGE, Change, Delivery

VERSION = 1
_FIELDS = {each.name for each in fields(Delivery)}

log = structlog.get_logger(__name__)


class BrokenStateError(Exception):
    """The state cannot be understood; the text has the reason."""


@dataclass(frozen=True, slots=True)
class KeptOrders:
    """The orders at run time."""

    standing: Standing = Standing.GIVING
    change: Change = NO_CHANGE


NOTHING_ORDERED = KeptOrders()


def encoded(kept: KeptOrders) -> bytes:
    """The content of the state file: JSON that people can read."""
    return orjson.dumps(
        {
            "version": VERSION,
            "standing": kept.standing.value,
            "topics": kept.change.topics,
            "pattern": kept.change.pattern,
            "delivery": {name: _plain(value) for name, value in kept.change.delivery.items()},
        },
        option=orjson.OPT_INDENT_2,
    )


def decoded(content: bytes) -> KeptOrders:
    """The orders in a state file. BrokenStateError for content that is no such state; the log names unknown fields."""
    try:
        state = orjson.loads(content)
        if state["version"] != VERSION:
            raise BrokenStateError(f"its version is {state['version']!r}, this release knows {VERSION}")
        standing = Standing(state["standing"])
        return KeptOrders(
            Standing.DRAINED if standing is Standing.DRAINING else standing,
            Change(tuple(map(str, state["topics"])), str(state["pattern"]), _delivery(state["delivery"])),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise BrokenStateError(f"not the state of a reactive consumer ({error!r})") from None


def _delivery(given: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := given.keys() - _FIELDS:
        log.warning("what was configured is not all known to this release", fields=sorted(unknown))
    known = {name: value for name, value in given.items() if name in _FIELDS}
    if "routes" in known:
        known["routes"] = tuple(Route(str(route["when"]), str(route["path"])) for route in known["routes"])
    return known


def _plain(value: Any) -> Any:
    return [asdict(route) for route in value] if isinstance(value, tuple) else value
