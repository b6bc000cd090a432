"""The address at which the caller reaches this sidecar, taken from the request, for addresses in answers."""

import re

from starlette.requests import Request

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?", re.ASCII)
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*", re.ASCII)


def public_address(request: Request, public_url: str, *, trust_forwarded: bool) -> str:
    """Scheme, host and prefix without a slash at the end; empty when the request names no host that could be one.

    `public_url` wins. A proxy's headers count only if the proxy is trusted, because any caller could send them.
    """
    if public_url:
        return public_url.rstrip("/")
    scheme, host, prefix = request.url.scheme, request.headers.get("host", ""), ""
    if trust_forwarded:
        told_scheme = _first(request, "x-forwarded-proto").lower()
        scheme = told_scheme if told_scheme in ("http", "https") else scheme
        host = _first(request, "x-forwarded-host") or host
        prefix = _first(request, "x-forwarded-prefix").rstrip("/")
    if not _HOST.fullmatch(host):
        return ""
    return f"{scheme}://{host}{prefix if _PREFIX.fullmatch(prefix) else ''}"


def _first(request: Request, name: str) -> str:
    """The value that the outermost of several proxies set."""
    return request.headers.get(name, "").partition(",")[0].strip()
