"""An archive for the planner of a restore: its topics, offsets and times, and the topic ids of the archived topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property

from services.pipeline.archives.catalogue import Catalogue, scan
from services.pipeline.archives.reader import ArchiveOrigin
from services.pipeline.kafka.admin import is_of_a_gateway
from services.pipeline.kafka.positions import PartitionLog, Place, Stamp
from services.pipeline.storage.stores import Store, in_parallel


class FolderArchive:
    """`copying.origins.Archive`, with the content at its first use. StoreError, ArchiveReadError."""

    def __init__(self, folder: str, options: Mapping[str, str] | None = None) -> None:
        """`options`: see storage/stores.py."""
        self._store = Store(folder, options or {})
        self._asked: set[str] = set()

    @cached_property
    def _catalogue(self) -> Catalogue:
        return scan(self._store)

    def anew(self) -> FolderArchive:
        """The folder as it is now."""
        return FolderArchive(self._store.folder, self._store.options)

    def topics(self) -> set[str]:
        """All topics of the archive."""
        return {each.topic for each in self._catalogue.holdings()}

    def extents(self, topics: Collection[str]) -> Mapping[Place, PartitionLog]:
        """The first archived offset of each partition, and the offset up to which the partition is archived.

        The last archived offsets may hold no records.
        """
        asked = self._only(topics)
        starts: dict[Place, int] = {}
        for each in asked.holdings():
            place = each.topic, each.partition
            starts[place] = min(each.first, starts.get(place, each.first))
        extents = {place: PartitionLog(start, asked.end(*place)) for place, start in starts.items()}
        return {place: held for place, held in extents.items() if held.start < held.end}

    def offsets_for_times(self, times: Mapping[Place, int]) -> Mapping[Place, int]:
        """For milliseconds since 1970: the offset of the first archived record that is not older, -1 where none is."""
        asked = self._only({topic for topic, _partition in times})

        def first(place: Place) -> int:
            with ArchiveOrigin(self._store, asked).reader() as reader:
                found = reader.first_not_older(*place, times[place])
            return -1 if found is None else found

        with in_parallel() as pool:
            return dict(zip(times, pool.map(first, times), strict=True))

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Kafka's ids of the archived topics; ids that a gateway made are left out."""
        known = {topic: each.topic_id for topic, each in self._only(topics).position.items()}
        return {topic: text for topic, text in known.items() if text and not is_of_a_gateway(text)}

    def last(self, topics: Collection[str]) -> Mapping[Place, Stamp]:
        """The archived record with the latest time of each partition; shows whether a topic is still the same."""
        known = self._only(topics).position
        return {(topic, partition): stamp for topic, each in known.items() for partition, stamp in each.last.items()}

    @property
    def origin(self) -> ArchiveOrigin:
        """The part of the archive that tasks need; it has the topics that were asked about."""
        return ArchiveOrigin(self._store, self._catalogue.only(self._asked))

    def _only(self, topics: Collection[str]) -> Catalogue:
        self._asked |= set(topics)
        return self._catalogue.only(topics)
