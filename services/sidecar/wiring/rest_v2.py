"""Assembles the face for clients of Confluent's REST proxy, version 2, if it has an address."""

from __future__ import annotations

import socket

from mesh.http_server import Server, bound_socket
from services.sidecar.admin.topics import Topics
from services.sidecar.api.consumers import ConsumerEndpoints
from services.sidecar.api.produce_requests import HeaderPolicy
from services.sidecar.api.records import RecordEndpoints
from services.sidecar.api.rest_v2 import RestV2Endpoints
from services.sidecar.api.rest_v2_errors import Dialect, handlers
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.producing.serializing import Serializer
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.http_servers import HttpServers
from services.sidecar.wiring.kafka_properties import client_properties


class RestV2Parts:
    """The face of one sidecar."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings
        self._topics = Topics(client_properties(settings))
        self._socket = bound_socket(settings.rest_v2_listen) if settings.rest_v2_listen else None
        self.port: int | None = self._socket.getsockname()[1] if self._socket else None

    def servers(
        self,
        http: HttpServers,
        consumers: ConsumerEndpoints,
        records: RecordEndpoints,
        producer: RecordProducer,
        serializer: Serializer,
    ) -> list[tuple[Server, socket.socket]]:
        """Its server, or none."""
        if self._socket is None:
            return []
        settings, dialect = self._settings, Dialect(self._settings.rest_v2_dialect)
        endpoints = RestV2Endpoints(
            consumers,
            records,
            producer,
            serializer,
            self._topics,
            dialect=dialect,
            headers=HeaderPolicy(settings.forward_authorization, settings.caller_id),
            max_request_bytes=settings.max_request_bytes,
        )
        return [(http.server(endpoints.routes(), errors=handlers(dialect)), self._socket)]

    def close(self) -> None:
        self._topics.close()
