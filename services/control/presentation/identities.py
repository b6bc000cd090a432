"""The identity of clients at a cluster, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mesh.rpc import routing

_MODES: Mapping[int, str] = {
    routing.IDENTITY_MODE_UNSPECIFIED: "mesh",
    routing.IDENTITY_MODE_MESH: "mesh",
    routing.IDENTITY_MODE_MAPPED: "mapped",
    routing.IDENTITY_MODE_PASSTHROUGH: "passthrough",
    routing.IDENTITY_MODE_EXCHANGE: "exchange",
}
_FALLBACKS: Mapping[int, str] = {routing.IDENTITY_FALLBACK_MESH: "mesh"}


def identity_differences(before: routing.UpstreamIdentity, after: routing.UpstreamIdentity) -> Iterator[str]:
    """ "identity mesh -> mapped", and each credential that came, went or has changed."""
    if before.mode != after.mode:
        yield f"identity {_mode(before)} -> {_mode(after)}"
    if _fallback(before) != _fallback(after):
        yield f"others {_fallback(before)} -> {_fallback(after)}"
    if before.audience != after.audience:
        yield f"audience {before.audience or 'none'} -> {after.audience or 'none'}"
    was, now = _credentials(before), _credentials(after)
    yield from (f"credential of {who} set" for who in now if who not in was)
    yield from (f"credential of {who} changed" for who in now if who in was and was[who] != now[who])
    yield from (f"credential of {who} removed" for who in was if who not in now)


def _mode(identity: routing.UpstreamIdentity) -> str:
    return _MODES.get(identity.mode, "one that this release does not know")


def _fallback(identity: routing.UpstreamIdentity) -> str:
    return _FALLBACKS.get(identity.fallback, "refuse")


def _credentials(identity: routing.UpstreamIdentity) -> dict[str, dict[str, str]]:
    return {
        f"{each.principal_prefix}*" if each.WhichOneof("who") == "principal_prefix" else each.principal: dict(
            each.properties
        )
        for each in identity.credentials
    }
