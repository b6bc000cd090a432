"""librdkafka properties in `producer_config` and `consumer_config`: which of them count for what.

Security and connection properties count for every connection to the cluster, the gateway's included. All others steer
only the mesh's own clients of that cluster (mirrors, replay, dead letters): passing traffic keeps what each client
asked for.
Whether a property exists is asked of librdkafka itself, by control.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mesh.rpc import routing
from meshctl.meshfile.model import Findings
from meshctl.meshfile.section import Section, Value

_CONNECTION_PREFIXES = ("ssl.", "sasl.", "socket.", "reconnect.backoff.", "broker.address.", "https.")
_CONNECTION_KEYS = frozenset(
    {
        "security.protocol",
        "enable.ssl.certificate.verification",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "connections.max.idle.ms",
        "client.dns.lookup",
    }
)
SECRET_KEYS = frozenset({"ssl.key.pem", "sasl.oauthbearer.config", "sasl.oauthbearer.assertion.private.key.pem"})
SECRET_WORDS = ("password", "passphrase", "secret")  # a misspelt secret must not be sent either
ADDRESS_KEYS = frozenset({"bootstrap.servers", "metadata.broker.list"})
REFERENCE = re.compile(r"\$\{(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^}]+)\}")
_WHY_NOT = {
    "acks": "each client's own acks count there",
    "request.required.acks": "each client's own acks count there",
    "group.id": "commits belong to the client's group",
    "client.id": "brokers see each client's own",
    "linger.ms": "records pass as each client batched them",
}
_WHY_NOT_OTHERWISE = "each client's own settings count there"
_BOOLEANS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}


def touches_every_connection(key: str) -> bool:
    """True for security and connection properties."""
    return key in _CONNECTION_KEYS or key.startswith(_CONNECTION_PREFIXES)


def read(section: Section, key: str, findings: Findings) -> dict[str, str]:
    """The properties under `key`: producer_config or consumer_config."""
    found = section.values(key)
    for name, value in found.items():
        if name in ADDRESS_KEYS:
            findings.error(value.line, value.place, "addresses belong in bootstrap_servers; take this property out")
        elif _is_secret(name) and not REFERENCE.fullmatch(value.text):
            findings.error(
                value.line, value.place, "a secret must not stand in the file; write ${env:NAME} or ${file:/path}"
            )
    return {name: _text(value) for name, value in found.items()}


def notice_what_does_not_touch_traffic(spec: routing.ClusterSpec, section: Section, findings: Findings) -> None:
    """A word for each property that passing traffic does not feel."""
    for key, clients, config in (
        ("producer_config", "producers", spec.producer_config),
        ("consumer_config", "consumers", spec.consumer_config),
    ):
        lines: Mapping[str, Value] = section.values(key)
        for name in config:
            if not touches_every_connection(name):
                why = _WHY_NOT.get(name, _WHY_NOT_OTHERWISE)
                text = (
                    f"does not touch passing traffic: {why}; it steers the mesh's own {clients} of {spec.cluster_name}"
                )
                findings.notice(lines[name].line, f"{spec.cluster_name} {name}", text)


def _is_secret(key: str) -> bool:
    return key in SECRET_KEYS or any(word in key for word in SECRET_WORDS)


def _text(value: Value) -> str:
    # YAML's yes/on/True and librdkafka's true are the same word
    return _BOOLEANS.get(value.text.lower(), value.text) if value.tag == "bool" else value.text
