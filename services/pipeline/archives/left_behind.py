"""The records that the topics of an archive left at former clusters: where they are, and which of them are lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from services.pipeline.archives.former_clusters import FormerClusters, FormerPlace
from services.pipeline.kafka.lags import Lag
from services.pipeline.kafka.left_records import Look, given_up_at, lag_of_left, loss_of, stays_of, topic_of
from services.pipeline.kafka.positions import Position, RecordsLostError, Stay, StreamError, UnreachableError
from services.pipeline.kafka.source import KafkaSource


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The stays that are not done; all mappings are by the names of stays (kafka/left_records.py)."""

    stays: Mapping[str, Stay] = field(default_factory=dict)
    places: Mapping[str, FormerPlace | StreamError] = field(default_factory=dict)
    looks: Mapping[str, Look | StreamError] = field(default_factory=dict)

    @property
    def lag(self) -> Lag:
        """The lag of what is left, as far as it is known."""
        seen = {name: look for name, look in self.looks.items() if not isinstance(look, StreamError)}
        return lag_of_left(self.stays, seen)

    def at(self, position: Position, source: KafkaSource) -> LeftBehind:
        """The stays of these places that are not done at `position`, as their clusters describe them now."""
        open_ = stays_of(position, source.topics)
        stays = {name: open_[name] for name in self.places.keys() & open_.keys()}
        places = {name: self.places[name] for name in stays}
        reading = LeftBehind(stays, places).added_to(source, ())
        return LeftBehind(stays, places, reading.left_logs(stays))

    def problems(self) -> dict[str, StreamError]:
        """The topics of which left records are lost, or can't be read now, with the reason."""
        found: dict[str, StreamError] = {}
        for name in self.stays:
            topic, problem = topic_of(name), self._problem(name)
            if problem is not None:
                found[topic] = both(found[topic], problem) if topic in found else problem
        return found

    def _problem(self, name: str) -> StreamError | None:
        place, look = self.places[name], self.looks.get(name)
        if isinstance(place, StreamError):
            return place
        if isinstance(look, StreamError):
            topic = topic_of(name)
            return UnreachableError(f"what topic {topic} left at {place.cluster} can't be read now: {look}")
        return loss_of(name, self.stays[name], look, place.text)

    def given_up(self, topic: str) -> list[str]:
        """Sentences that name what the acceptance of a loss of this topic gives up."""
        return [
            given_up_at(name, stay, "" if isinstance(place := self.places[name], StreamError) else place.text)
            for name, stay in self.stays.items()
            if topic_of(name) == topic and isinstance(self._problem(name), RecordsLostError)
        ]

    def added_to(self, source: KafkaSource, accept_loss_of: Collection[str]) -> KafkaSource:
        """The source that also reads what is left, with the loss of these topics accepted."""
        found = {name: place for name, place in self.places.items() if isinstance(place, FormerPlace)}
        accepted = source.topics if source.accept_loss else accept_loss_of
        unknown = {
            name: ""
            for name, place in self.places.items()
            if isinstance(place, RecordsLostError) and topic_of(name) in accepted
        }
        return replace(
            source,
            clusters={**source.clusters, **{each.cluster: each.properties for each in found.values() if each.text}},
            former={name: place.text for name, place in found.items()} | unknown,
            accept_loss_of=tuple(accept_loss_of),
        )


def left_behind(source: KafkaSource, position: Position, former: FormerClusters | None) -> LeftBehind:
    """The places of the records that the topics of `source` have left, still without a description by their clusters.

    Asks nobody if no topic has moved.
    """
    stays = stays_of(position, source.topics)
    if not stays:
        return LeftBehind()
    if former is None:
        unknown = UnreachableError("left records can't be read: this run knows no control, which knows the clusters")
        return LeftBehind(stays, dict.fromkeys(stays, unknown))
    return LeftBehind(stays, former.places_of(stays))


def both(one: StreamError, other: StreamError) -> StreamError:
    """Two problems of a topic as one; it is a loss if one of them is."""
    text = f"{one}; {other}"
    is_loss = isinstance(one, RecordsLostError) or isinstance(other, RecordsLostError)
    return RecordsLostError(text) if is_loss else StreamError(text)
