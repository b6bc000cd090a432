"""ProfileService: the last profile of a topic's records."""

from __future__ import annotations

from typing import Any

from mesh.rpc import profiles, profiles_grpc
from services.control.api import shapes
from services.control.domain.replays.profiles import TOPICS, profile_of
from services.control.store.journal import Journal


class ProfileService(profiles_grpc.ProfileServiceServicer):
    """See ProfileService in profiles.proto."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def GetTopicProfile(self, request: profiles.GetTopicProfileRequest, context: Any) -> profiles.TopicProfile:
        self._journal.require_loaded()
        topic = shapes.id_of(TOPICS.removesuffix("/"), request.name)
        return profile_of(self._journal.view.profiles, topic)
