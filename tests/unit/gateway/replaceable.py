"""Connections whose parts can be replaced one by one: the gateway's own have slots."""

from mesh.listeners import Security
from services.gateway.downstream.client import ClientConnection
from services.gateway.downstream.entrance import Entrance
from services.gateway.listeners import Listener
from services.gateway.requests.nodes import Advertised
from services.gateway.upstream.connection import BrokerConnection


class FromClient(ClientConnection):
    """A client's."""


class ToBroker(BrokerConnection):
    """A broker's."""


def open_entrance(host: str) -> Entrance:
    """The entrance of a listener that asks for nothing."""
    return Entrance(Listener(host, 1, Security.PLAINTEXT, Advertised(host, 1)))
