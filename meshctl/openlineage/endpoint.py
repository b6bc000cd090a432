"""An endpoint that takes OpenLineage events by HTTP, as OpenLineage's own clients send them: one event a request."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

import orjson

PATH: Final = "/api/v1/lineage"
TOKEN_VARIABLE: Final = "OPENLINEAGE_API_KEY"  # noqa: S105  # the name of a variable, no password
REQUEST_S: Final = 10.0
LONGEST_REASON: Final = 300
"""Bytes of an answer that are shown."""
LATER: Final = frozenset({408, 425, 429})
"""Statuses of the 4xx that ask to come again."""
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class EndpointError(ValueError):
    """An address that is no endpoint, or an event that the endpoint refuses."""


class EndpointTarget:
    """Sends each event by POST. OSError if the endpoint is away, or asks to come again."""

    def __init__(self, address: str, token: str | None = None) -> None:
        """`token`: a bearer token; that of the environment by default."""
        self._url = url_of(address)
        self._token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        parts = urllib.parse.urlsplit(self._url)
        if self._token and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise EndpointError(f"{TOKEN_VARIABLE} is set, and {address} would carry it unencrypted: use https")
        self._opener = urllib.request.build_opener(_NoRedirect)

    def send(self, event: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._url, orjson.dumps(event), headers, method="POST")  # noqa: S310  # https or http: `url_of`
        try:
            with self._opener.open(request, timeout=REQUEST_S) as answer:
                answer.read(LONGEST_REASON)
        except urllib.error.HTTPError as error:
            reason = error.read(LONGEST_REASON).decode(errors="replace").strip()
            text = f"{self._url} answers {error.code} {error.reason}{f': {reason}' if reason else ''}"
            if error.code >= 500 or error.code in LATER:
                raise ConnectionError(text) from error
            raise EndpointError(f"{text}; the event of job {event['job']['name']!r} was refused") from error
        except http.client.HTTPException as error:
            raise ConnectionError(f"{self._url} answers no HTTP: {error!r}") from error

    def flush(self) -> None:
        """Each event is sent at once."""

    def close(self) -> None:
        """Nothing stays open."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes to the address that was given, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def url_of(address: str) -> str:
    """The address of the endpoint: OpenLineage's path is added where the address has none."""
    try:
        parts = urllib.parse.urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise EndpointError(f"{address!r} is no address: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise EndpointError(f"{address!r} is no address of the form https://HOST:PORT; a token is in {TOKEN_VARIABLE}")
    if parts.query or parts.fragment:
        raise EndpointError(f"{address!r} has a query or a fragment; leave it out")
    path = parts.path if parts.path.strip("/") else PATH
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", ""))
