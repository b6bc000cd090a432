"""Lists that refresh: `-w`, `--interval`, `-n`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from meshctl.session import Session

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Looking:
    """How often a list refreshes."""

    again: bool
    interval: float
    number: int | None

    def at(self, look: Callable[[], T]) -> Iterator[T]:
        """The result of each refresh; only one, unless the list is to be watched."""
        looks = 0
        while True:
            yield look()
            looks += 1
            if not self.again or looks == self.number:
                return
            time.sleep(self.interval)


def look_options(interval: float) -> Callable[[F], F]:
    """The options of a list that can be watched, given to the command as `looking`; `interval`: usual seconds."""

    def decorated(command: F) -> F:
        @click.option(
            "-w", "--watch", is_flag=True, help="Look again and again, until Ctrl-C; -o json: one line a look."
        )
        @click.option(
            "--interval",
            type=click.FloatRange(min=0.1),
            default=interval,
            show_default=True,
            metavar="SECONDS",
            help="Between two looks.",
        )
        @click.option("-n", "--count", "number", type=click.IntRange(min=1), help="Stop after so many looks.")
        @functools.wraps(command)
        def wrapped(*args: Any, watch: bool, interval: float, number: int | None, **kwargs: Any) -> Any:
            return command(*args, looking=Looking(watch, interval, number), **kwargs)

        return cast(F, wrapped)

    return decorated


def show_looks(
    session: Session,
    looking: Looking,
    look: Callable[[], T],
    print_one: Callable[[T], None],
    as_table: Callable[[T], Table],
) -> None:
    """Prints one result, or one after the other; on a terminal, each replaces the one before."""
    stream = click.get_text_stream("stdout")
    try:
        if not looking.again or session.as_json or not stream.isatty():
            for found in looking.at(look):
                print_one(found)
            return
        with Live(console=Console(file=stream, highlight=False), auto_refresh=False) as live:
            for found in looking.at(look):
                live.update(as_table(found), refresh=True)
    except KeyboardInterrupt:
        return
