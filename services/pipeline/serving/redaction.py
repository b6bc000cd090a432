"""Removes secrets from the output of a driver.

The pipeline writes no secrets itself, but a library may show its configuration.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from urllib.parse import unquote, urlsplit

from mesh.secret_references import REFERENCE
from services.pipeline.settings import PipelineSettings, in_clear

SHORTEST_SECRET = 4
"""Characters; shorter texts occur everywhere."""
HIDDEN = "***"
_SECRET_MARKS = (
    "password",
    "secret",
    "jaas",
    "token",
    "credential",
    ".pem",
    "ssl.key",
    "sasl.username",
    "bearer.config",
)


def secrets_in(clusters: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
    """Values of librdkafka's properties that look like a secret; a reference to a secret is not one."""
    return frozenset(
        value
        for properties in clusters.values()
        for name, value in properties.items()
        if any(mark in name for mark in _SECRET_MARKS) and not REFERENCE.fullmatch(value)
    )


def secrets_of(settings: PipelineSettings) -> frozenset[str]:
    """Secrets that every driver gets by the environment and the file of settings."""
    every = ({"": settings.kafka_properties} | settings.clusters).items()
    found = set(secrets_in({name: in_clear(properties) for name, properties in every}))
    if settings.database_url is not None:
        password = urlsplit(settings.database_url.get_secret_value()).password or ""
        found |= {password, unquote(password)}
    if settings.schema_registry_credentials is not None:
        credentials = settings.schema_registry_credentials.get_secret_value()
        found |= {credentials, credentials.partition(":")[2]}
    return frozenset(found)


class Hiding:
    """Removes secrets from texts: in plain form, in their JSON forms, and each line of a secret with several lines."""

    def __init__(self, secrets: Iterable[str]) -> None:
        lines = {line for secret in secrets for line in (secret, *secret.splitlines())}
        written = {form for line in lines for form in (line, _in_json(line), _in_json(line, plain=False))}
        long_enough = (form for form in written if len(form) >= SHORTEST_SECRET)
        self._forms = sorted(long_enough, key=len, reverse=True)  # a secret may be a part of another

    def hide(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text


def _in_json(text: str, *, plain: bool = True) -> str:
    return json.dumps(text, ensure_ascii=plain)[1:-1]
