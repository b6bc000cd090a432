"""Levels of this process's loggers, read and set while it runs: by operators' orders and by `/adm/logger` alike.

A logger is named as in the log lines (`services.sidecar.consuming.instance`, `librdkafka`, `uvicorn.error`); `ROOT`
stands above all. A logger without a level of its own has that of the nearest one above it that has one.
"""

import logging
from collections.abc import Mapping

ROOT = "ROOT"
MAX_LOGGERS = 1_000
"""Python never forgets a logger, so levels are given to so many at most."""
MAX_NAME_LENGTH = 200

QUIET = ("httpx", "httpx2")
"""These libraries log the address of each request at INFO, and an address may hold a login."""

_LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    # the levels that the original's operators know
    "TRACE": logging.DEBUG,
    "WARN": logging.WARNING,
    "FATAL": logging.CRITICAL,
}
_WORDS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class UnknownLevelError(ValueError):
    """An unknown level or logger. The text names it, and the valid ones."""


def quieten() -> None:
    """Raises the level of verbose libraries to WARNING. An operator may lower the level again, by name."""
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def levels() -> dict[str, str]:
    """The loggers that have a level of their own, ROOT first, with their levels."""
    known = logging.root.manager.loggerDict
    named = {
        name: logging.getLevelName(logger.level)
        for name, logger in sorted(known.items())
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET
    }
    return {ROOT: logging.getLevelName(logging.root.level), **named}


def level_of(name: str) -> str:
    """The level that counts for a logger, whether its own or one from above."""
    return logging.getLevelName(_logger(name).getEffectiveLevel()) if _is_known(name) else levels()[ROOT]


def set_levels(wanted: Mapping[str, str]) -> dict[str, str]:
    """Sets all levels, or none: UnknownLevelError. Returns the levels of all loggers that have one."""
    numbers = {_checked(name): _number(name, level) for name, level in wanted.items()}
    new = sum(not _is_known(name) for name in numbers)
    if new and len(logging.root.manager.loggerDict) + new > MAX_LOGGERS:
        raise UnknownLevelError(f"{new} more loggers would be more than {MAX_LOGGERS}; set levels of those that exist")
    for name, number in numbers.items():
        _logger(name).setLevel(number)
    return levels()


def number_of(level: str) -> int:
    """A level as Python's logging numbers it. UnknownLevelError for a word that is none."""
    try:
        return _LEVELS[level.upper()]
    except KeyError:
        raise UnknownLevelError(f"{level!r} is no level; take one of {', '.join(_WORDS)}") from None


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _is_known(name: str) -> bool:
    return name == ROOT or name in logging.root.manager.loggerDict


def _checked(name: str) -> str:
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise UnknownLevelError(f"logger {name[:40]!r}: a name has 1 to {MAX_NAME_LENGTH} characters")
    return ROOT if name.upper() == ROOT else name


def _number(name: str, level: str) -> int:
    try:
        return number_of(level)
    except UnknownLevelError as error:
        raise UnknownLevelError(f"logger {name}: {error}") from None
