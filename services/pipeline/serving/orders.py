"""The order for a driver: the replay, and the connections to its clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import grpc

from mesh.rpc import replays
from services.pipeline.driver_protocol.orders import Order
from services.pipeline.kafka.clusters import ClustersError, clusters_of, properties_of
from services.pipeline.settings import PipelineSettings

DRIVERS: Mapping[str, str] = {"topic": "replay", "profile": "profile"}
"""The job that carries out a replay, by its destination; this member accepts only these destinations."""


class ImpossibleOrderError(Exception):
    """This member can't carry out the replay; the message is a sentence with the reason."""


class NotNowError(Exception):
    """A need of the order is missing at the moment."""


class OrderMaking:
    """Makes orders by the settings."""

    def __init__(self, settings: PipelineSettings) -> None:
        self._settings = settings

    async def order(self, replay: replays.Replay) -> Order:
        """ImpossibleOrderError, NotNowError."""
        properties = await asyncio.to_thread(self._properties, named_in(replay))
        return Order(replay, properties, self._settings.archive_folder)

    def _properties(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        try:
            return properties_of(clusters_of(self._settings), names)
        except ClustersError as error:
            if isinstance(error.__cause__, grpc.RpcError):
                raise NotNowError(str(error)) from None
            raise ImpossibleOrderError(str(error)) from None


def named_in(replay: replays.Replay) -> set[str]:
    """Names of the clusters that the replay reads and writes."""
    named = {replay.spec.topic.cluster, replay.spec.topic.source_cluster}
    return {place.cluster for place in replay.places} | (named - {""})
