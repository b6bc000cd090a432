"""A token by the device flow (RFC 8628): the user allows it in a browser, on any device."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meshctl.failures import ExitCode, MeshctlError

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
REQUEST_S = 10.0
LARGEST_ANSWER = 256 * 1024
USUAL_INTERVAL_S = 5.0
"""Between two questions, where the issuer names no other time."""
SLOWER_S = 5.0
"""Longer from then on, when the issuer asks for it."""
USUAL_LIFE_S = 600.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Login:
    """An issuer, and this program as the issuer knows it."""

    issuer: str
    client_id: str
    scope: str = "openid"


def token_of(
    login: Login,
    show: Callable[[str, str], None],
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """The token. `show` gets the address to open and the code to enter there."""
    place = f"{login.issuer.rstrip('/')}/.well-known/openid-configuration"
    about = _asked(place, None)
    if about.get("issuer") != login.issuer:
        raise _failed(place, "it is about another issuer")
    device, tokens = (str(about.get(f"{name}_endpoint", "")) for name in ("device_authorization", "token"))
    if not device or not tokens:
        raise _failed(login.issuer, "it has no device flow: get a token in another way, and give --token-file")
    given = _asked(device, {"client_id": login.client_id, "scope": login.scope})
    try:
        code = str(given["device_code"])
        show(str(given.get("verification_uri_complete") or given["verification_uri"]), str(given["user_code"]))
    except KeyError as missing:
        raise _failed(device, f"its answer lacks {missing}") from None
    interval = float(given.get("interval", USUAL_INTERVAL_S))
    ends = clock() + float(given.get("expires_in", USUAL_LIFE_S))
    form = {"grant_type": GRANT, "device_code": code, "client_id": login.client_id}
    while clock() < ends:
        wait(interval)
        answer = _asked(tokens, form)
        if token := answer.get("access_token"):
            return str(token)
        match answer.get("error"):
            case "authorization_pending":
                continue
            case "slow_down":
                interval += SLOWER_S
            case "access_denied":
                raise MeshctlError("the login was refused in the browser", ExitCode.REFUSED)
            case error:
                raise _failed(tokens, str(error or "it answers without a token"))
    raise MeshctlError("nobody allowed the login in time: try again", ExitCode.UNAVAILABLE)


def _asked(url: str, form: Mapping[str, str] | None) -> dict[str, Any]:
    """The JSON of an answer, also of one that is an error by OAuth. MeshctlError if there is none."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise _failed(url, "others could read the token: only https is served")
    data = None if form is None else urllib.parse.urlencode(form).encode()
    request = urllib.request.Request(url, data, {"Accept": "application/json"})
    try:
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
                body = answer.read(LARGEST_ANSWER)
        except urllib.error.HTTPError as error:
            body = error.read(LARGEST_ANSWER)
        said = json.loads(body)
    except OSError as error:
        raise _failed(url, str(getattr(error, "reason", "") or error)) from None
    except ValueError:
        raise _failed(url, "its answer is not JSON") from None
    if not isinstance(said, dict):
        raise _failed(url, "its answer is no JSON object")
    return said


def _failed(url: str, reason: str) -> MeshctlError:
    return MeshctlError(f"no token from {url}: {reason}", ExitCode.UNAVAILABLE)
