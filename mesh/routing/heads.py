"""Finding items by the beginnings of names, among items whose order is that of these beginnings.

The key of an item begins with its *head*: the text with which all names begin that its match has.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress, count
from operator import ne
from typing import TypeVar

from mesh.routing.ordered import Ordered

Item = TypeVar("Item")


def beginning_with(head: str, items: Ordered[Item]) -> Iterator[Item]:
    """The items whose head is this one, or begins with it."""
    for item in items.since((head,)):
        if not items.key(item)[0].startswith(head):
            return
        yield item


def beginnings_of(head: str, items: Ordered[Item]) -> Iterator[Item]:
    """The items with whose head this one begins, without those that have this one."""
    below = items.last_below((head,))
    while below is not None:
        # no head lies between the last one below and this one, so all shorter beginnings are beginnings of both
        shorter = items.key(below)[0]
        head = head[: next(compress(count(), map(ne, shorter, head)), len(shorter))]
        yield from with_head(head, items)
        below = items.last_below((head,))


def with_head(head: str, items: Ordered[Item]) -> Iterator[Item]:
    """The items with exactly this head."""
    for item in items.since((head,)):
        if items.key(item)[0] != head:
            return
        yield item
