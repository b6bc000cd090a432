"""The original's kafka-ksqldb.yml as our settings: the server's address, and the query to follow."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from services.sidecar.original.folder import Folder
from services.sidecar.original.stores import NotPemError, pem_path

FILE = "kafka-ksqldb"
ACTIVE_HOOK = "KsqldbActiveConsumerStartupHook"
REACTIVE_HOOK = "KsqldbReactiveConsumerStartupHook"
HOOKS = frozenset({ACTIVE_HOOK, REACTIVE_HOOK})
NAMES = frozenset(
    {
        "ksqldbHost", "ksqldbPort", "useTls", "trustStore", "trustStorePassword", "basicAuthCredentialsUser",
        "basicAuthCredentialsPassword", "initialStreams", "initialTables", "query", "properties", "backendUrl",
        "backendPath",
    }
)  # fmt: skip


def ksqldb_settings(read: Folder, hooks: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Our settings, and the reasons why the file cannot be used; both are empty if nobody switches ksqlDB on.

    `hooks` are the listed start-up hooks. Without a list, a server or a query that somebody has set switches ksqlDB on.
    """
    asks = ACTIVE_HOOK in hooks if hooks else read.says(f"{FILE}.ksqldbHost")
    follows = REACTIVE_HOOK in hooks if hooks else read.values.gives(f"{FILE}.query")
    if not asks and not follows:
        return {}, []
    said = read.files[FILE]
    is_tls = bool(said.get("useTls"))
    settings: dict[str, Any] = {
        "ksqldb_url": f"{'https' if is_tls else 'http'}://{said['ksqldbHost']}:{said['ksqldbPort']}",
        "ksqldb_active_enabled": asks,
    }
    if is_tls or read.values.gives(f"{FILE}.username"):
        settings["ksqldb_user_info"] = (
            f"{said.get('basicAuthCredentialsUser', '')}:{said.get('basicAuthCredentialsPassword', '')}"
        )
    if follows:
        settings |= {
            "ksqldb_query": f"{str(said['query']).rstrip('; ')};",
            "ksqldb_query_properties": dict(said.get("properties") or {}),
            "ksqldb_initial_streams": said.get("initialStreams") or [],
            "ksqldb_initial_tables": said.get("initialTables") or [],
            "ksqldb_backend_url": said["backendUrl"],
            "ksqldb_backend_path": said["backendPath"],
        }
    if is_tls and said.get("trustStore"):
        try:
            settings["ksqldb_ca_location"] = pem_path(Path(said["trustStore"]))
        except NotPemError as error:
            return settings, [f"{FILE}.yml: trustStore: {error}"]
    return settings, []
