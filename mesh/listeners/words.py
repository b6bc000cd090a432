"""Listeners and their changes in words."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.listeners.codec import listener_from_proto
from mesh.listeners.listener import Certificates, DecidedListener
from mesh.rpc import listeners


def listener_text(of: listeners.Listener) -> str:
    """ "outside: SASL_SSL, SCRAM-SHA-512, port 9094"."""
    return f"{of.name}: {policy_text(of)}"


def policy_text(of: listeners.Listener) -> str:
    """The same without its name."""
    return ", ".join(_parts(listener_from_proto(of)))


def change_text(of: listeners.ListenerChange) -> str:
    """The sentence of a change."""
    return listener_text(of.listener) if of.HasField("listener") else f"{of.name} is as the settings of gateways say"


def open_text(of: listeners.OpenListener) -> str:
    """A listener at a gateway: "outside SASL_SSL://0.0.0.0:9094, advertised kafka:9094, decided"."""
    parts = [f"{of.name} {of.address}", f"advertised {of.advertised}"]
    parts += [" ".join(of.sasl_mechanisms)] if of.sasl_mechanisms else []
    parts.append("decided" if of.decided else "from settings")
    parts += [f"{of.draining} connections end"] if of.draining else []
    parts += [f"NOT OPEN: {of.fault}"] if of.fault else []
    return ", ".join(parts)


def _parts(of: DecidedListener) -> Iterator[str]:
    if of.security is None:
        yield "closed"
        return
    yield of.security.value
    if of.mechanisms:
        yield " ".join(of.mechanisms)
    if of.certificates is not Certificates.NONE:
        yield f"certificates {of.certificates.value}"
    if of.mapping_rules:
        yield f"principals by {of.mapping_rules}"
    if of.port:
        yield f"port {of.port}"
    if of.advertised:
        yield f"advertised {of.advertised}"
