"""The last log lines, as an operator asks for them."""

import logging
from collections.abc import Iterator

import orjson
import pytest
import structlog

from services.sidecar.admin import log_memory
from services.sidecar.admin.log_memory import LogMemory, LogQuery

EVER = 2**62


@pytest.fixture
def memory() -> Iterator[LogMemory]:
    memory = LogMemory()
    logger = logging.getLogger("shop")
    logger.addHandler(memory)
    logger.setLevel(logging.DEBUG)
    yield memory
    logger.removeHandler(memory)
    logger.setLevel(logging.NOTSET)


def events(memory: LogMemory, **query: object) -> dict[str, list[str]]:
    asked = {"level": logging.DEBUG, "start_ms": 0, "end_ms": EVER, **query}
    found = memory.find(LogQuery(**asked))  # type: ignore[arg-type]
    return {name: [orjson.loads(orjson.dumps(line))["event"] for line in one.logs] for name, one in found.items()}


def test_lines_are_found_by_logger_and_level(memory: LogMemory) -> None:
    logging.getLogger("shop.till").warning("empty")
    logging.getLogger("shop.till").error("stuck")
    logging.getLogger("shop.door").info("open")
    assert events(memory) == {"shop.door": ["open"], "shop.till": ["empty", "stuck"]}
    assert events(memory, level=logging.ERROR) == {"shop.till": ["stuck"]}
    assert events(memory, logger="shop.till", level=logging.WARNING) == {"shop.till": ["empty", "stuck"]}
    assert events(memory, logger="shop") == {"shop.door": ["open"], "shop.till": ["empty", "stuck"]}
    assert events(memory, logger="sho") == {}


def test_a_page_says_how_many_there_are(memory: LogMemory) -> None:
    for number in range(5):
        logging.getLogger("shop").error("no. %d", number)
    found = memory.find(LogQuery(logging.ERROR, 0, EVER, offset=1, limit=2))["shop"]
    assert found.total == 5
    assert [orjson.loads(orjson.dumps(line))["event"] for line in found.logs] == ["no. 1", "no. 2"]


def test_only_the_time_asked_for_is_searched(memory: LogMemory) -> None:
    logging.getLogger("shop").error("now")
    assert events(memory, start_ms=0, end_ms=1) == {}


def test_ids_of_the_exchange_are_in_the_line(memory: LogMemory) -> None:
    with structlog.contextvars.bound_contextvars(cId="c-1", tId="t-1"):
        logging.getLogger("shop").error("bound")
    [line] = memory.find(LogQuery(logging.ERROR, 0, EVER))["shop"].logs
    shown = orjson.loads(orjson.dumps(line))
    assert (shown["cId"], shown["tId"], shown["level"], shown["logger"]) == ("c-1", "t-1", "error", "shop")


def test_old_lines_go_when_the_bound_is_reached(memory: LogMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_memory, "MAX_LINES", 3)
    for number in range(5):
        logging.getLogger("shop").error("%d", number)
    assert events(memory) == {"shop": ["2", "3", "4"]}
    monkeypatch.setattr(log_memory, "MAX_BYTES", 250)
    logging.getLogger("shop").error("x" * 100)
    assert events(memory) == {"shop": ["x" * 100]}


def test_a_huge_line_is_not_kept_whole(memory: LogMemory) -> None:
    logging.getLogger("shop").error("x" * (log_memory.LONGEST_LINE + 1))
    [[event]] = events(memory).values()
    assert "too long" in event
