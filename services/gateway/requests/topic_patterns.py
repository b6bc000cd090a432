"""Topics that an operator has named, with `*` for any characters."""

import re
from collections.abc import Iterable

TOPICS_REMEMBERED = 10_000
"""Topic names of which the gateway remembers whether they match."""


class TopicPatterns:
    """The topics that match one of the names."""

    __slots__ = ("_known", "_pattern")

    def __init__(self, names: Iterable[str]) -> None:
        self._pattern = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names))
        self._known: dict[str, bool] = {}

    def __contains__(self, topic: str) -> bool:
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= TOPICS_REMEMBERED:
                self._known.clear()
            known = self._known[topic] = self._pattern.fullmatch(topic) is not None
        return known
