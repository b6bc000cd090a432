"""The call of a sidecar that writes a record again, as a line for a shell. No I/O."""

from __future__ import annotations

import base64
import json
import shlex
from typing import Any
from urllib.parse import quote

from mesh.judging.records import Record
from services.console.records.texts import readable

MOST = 16 * 1024
"""Bytes of key, value and headers together: a longer line is no line to copy."""
ANY_SIDECAR = "$SIDECAR"


def as_curl(record: Record, sidecar: str) -> str:
    """The line; empty if it would be too long. `sidecar`: its address; empty: a variable of the shell."""
    headers = record.headers() or []
    key, value = record.key(), record.value()
    size = len(key or b"") + len(value or b"") + sum(len(name) + len(each or b"") for name, each in headers)
    if size > MOST:
        return ""
    body: dict[str, Any] = {}
    said: dict[str, Any] = {}
    for name, data in (("key", key), ("value", value)):
        if data is not None:
            text = readable(data)
            body[f"{name}Format"] = "binary" if text is None else "string"
            said[name] = base64.b64encode(data).decode() if text is None else text
    if headers:
        said["headers"] = [_header(name, each) for name, each in headers]
    body["records"] = [{**said, "partition": record.partition()}]
    address = shlex.quote(sidecar.rstrip("/")) if sidecar else f'"{ANY_SIDECAR}"'
    path = shlex.quote(f"/producers/{quote(record.topic(), safe='')}")
    kind = shlex.quote("Content-Type: application/json")
    return f"curl {address}{path} -H {kind} -d {shlex.quote(json.dumps(body, ensure_ascii=True))}"


def _header(name: str, value: bytes | None) -> dict[str, str]:
    return {"key": name} if value is None else {"key": name, "value": base64.b64encode(value).decode()}
