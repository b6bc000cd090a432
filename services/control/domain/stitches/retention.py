"""The retention of a stitched log: the settings that the topics of its parts need, and until when a part is kept.

Theory of operation
1. The settings of the topic are those that it has at its present place. They hold over all parts.
2. Records leave a log from its beginning. So only the oldest part expires, and the parts behind it keep everything
   meanwhile: a hole amid the log would send consumers back to its beginning.
3. `retention.bytes` counts all parts of a partition. The oldest part may have what the parts behind it leave over. A
   topic has one setting for all its partitions, so the partition with the fewest bytes behind the oldest part counts:
   no partition loses more than the setting allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mesh.routing import Place
from mesh.stitches import LogPart

TIME, SIZE = "retention.ms", "retention.bytes"
RETENTION: Final = (TIME, SIZE)
UNBOUNDED: Final = "-1"
KEEPS_ALL: Final = {TIME: UNBOUNDED, SIZE: UNBOUNDED}
SLACK: Final = timedelta(minutes=10)
"""A broker looks for old records every 5 minutes (log.retention.check.interval.ms), and deletes files soon after."""
LONGEST: Final = timedelta(days=36_500)
"""A longer retention is as good as none."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The end of a part as a sentence, and its latest time; None: it is not known, or never."""

    sentence: str
    latest: datetime | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str], ended: datetime, *, is_left: bool) -> Retention:
        """`ended`: when the last record was written; `is_left`: whether the cluster has records of the part."""
        if not is_left:
            return cls("nothing is left there")
        said = settings.get(TIME, "")
        if not said.lstrip("-").isdigit():
            return cls("not known: the cluster does not tell retention.ms")
        kept = timedelta(milliseconds=min(int(said), LONGEST // timedelta(milliseconds=1)))
        if kept < timedelta(0) or kept >= LONGEST:
            return cls(f"never: retention.ms is {said}")
        latest = ended + kept + SLACK
        return cls(f"at the latest {latest:%Y-%m-%d %H:%M} UTC", latest)


def place_of(part: LogPart) -> Place:
    return Place(part.cluster, part.topic)


def old_places(parts: Sequence[LogPart]) -> list[Place]:
    """The places that have no present part, that of the oldest part first."""
    return [each for each in dict.fromkeys(map(place_of, parts)) if each != place_of(parts[-1])]


def bounds_size(settings: Mapping[str, str]) -> bool:
    """Whether a topic with these settings loses records because of its size."""
    return not settings[SIZE].startswith("-")


def settings_of_old(
    parts: Sequence[LogPart], settings: Mapping[str, str], sizes: Mapping[Place, Mapping[int, int]]
) -> dict[Place, dict[str, str]]:
    """The settings that the old parts' topics need. `settings`: those at the present place.

    `sizes`: place -> partition -> bytes. An unknown size counts as nothing, and so does a place with several parts.
    """
    places = list(map(place_of, parts))
    needed = {each: dict(KEEPS_ALL) for each in old_places(parts)}
    if places[0] in needed:
        needed[places[0]] = {TIME: settings[TIME], SIZE: settings[SIZE]}
        if bounds_size(settings):
            behind = [each for each in places if each != places[0] and places.count(each) == 1]
            taken = min(
                sum(sizes.get(each, {}).get(number, 0) for each in behind) for number in range(len(parts[0].shifts))
            )
            needed[places[0]][SIZE] = str(max(0, int(settings[SIZE]) - taken))
    return needed
