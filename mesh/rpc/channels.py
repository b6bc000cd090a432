"""How every part of the mesh opens a gRPC channel: limits, keepalive, mutual TLS."""

from __future__ import annotations

import grpc
import grpc.aio

from mesh.rpc.tls import RpcTls

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Largest message: a routing table of 10,000 rules is about 2 MiB; the rest is room for rule history."""
LIMITS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.ping_timeout_ms", 5_000),
)
"""Options of every server and channel of the mesh: they notice within 15 s that a peer is dead.

While a ping that measures the bandwidth is under way, gRPC sends no ping of its keepalive. gRPC waits 60 s for the
answer to the former, unless `ping_timeout_ms` says otherwise.
"""
OPTIONS = (
    *LIMITS,
    ("grpc.enable_http_proxy", 0),  # a neighbour is not behind a proxy for the web
    ("grpc.use_local_subchannel_pool", 1),  # no channel waits out the back-off of another one
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 3000),
)
"""Options of every channel: a channel tries again at least every 3 s."""


def open_channel(address: str, tls: RpcTls | None = None) -> grpc.aio.Channel:
    """A channel for asyncio. RpcTlsError if a file can't be used."""
    if tls is None:
        return grpc.aio.insecure_channel(address, options=OPTIONS)
    return grpc.aio.secure_channel(address, tls.channel_credentials(), options=OPTIONS)


def open_token_channel(address: str, token: str, ca: bytes | None = None) -> grpc.Channel:
    """A channel by TLS, without an event loop, whose calls carry a bearer token. `ca` in PEM; None: the system's."""
    both = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(ca), grpc.access_token_call_credentials(token)
    )
    return grpc.secure_channel(address, both, options=OPTIONS)


def open_blocking_channel(address: str, tls: RpcTls | None = None) -> grpc.Channel:
    """A channel for programs without an event loop. RpcTlsError if a file can't be used."""
    if tls is None:
        return grpc.insecure_channel(address, options=OPTIONS)
    return grpc.secure_channel(address, tls.channel_credentials(), options=OPTIONS)


def open_tls_channel(address: str, ca: bytes | None = None) -> grpc.aio.Channel:
    """A channel for asyncio by TLS, whose calls carry tokens. `ca` in PEM; None: the system's."""
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca), options=OPTIONS)
