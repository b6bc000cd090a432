"""Connections whose parts can be replaced one by one: the gateway's own have slots."""

from services.gateway.downstream.client import ClientConnection
from services.gateway.upstream.connection import BrokerConnection


class FromClient(ClientConnection):
    """A client's."""


class ToBroker(BrokerConnection):
    """A broker's."""
