"""Translates the original's files into our settings, with warnings about settings that have no counterpart."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.sidecar.original import folder, ksqldb, reactive, replaying, streams
from services.sidecar.original.auditing import MEMBERS, audit_settings
from services.sidecar.original.folder import Folder, OriginalConfigError
from services.sidecar.original.java_properties import Translation, translate
from services.sidecar.original.stores import NotPemError, pem_path

EVERY_ADDRESS = ("0.0.0.0", "::", "")
LOOPBACK = "127.0.0.1"
HOOKS = "com.networknt.server.StartupHookProvider"

SAME_MEANING: dict[str, dict[str, str]] = {
    "kafka-consumer": {
        "deadLetterEnabled": "dead_letter_enabled",
        "deadLetterTopicExt": "dead_letter_extension",
        "instanceTimeoutMs": "instance_timeout_ms",
        "keyFormat": "consumer_key_format",
        "maxConsumerThreads": "max_instances",
        "requestMaxBytes": "request_max_bytes",
        "requestTimeoutMs": "request_timeout_ms",
        "useNoWrappingAvro": "use_no_wrapping_avro",
        "valueFormat": "consumer_value_format",
    },
    "kafka-producer": {"keyFormat": "key_format", "valueFormat": "value_format"},
    "server": {"maxTransferFileSize": "max_request_bytes", "serviceId": "service_id"},
    "health": {
        "downstreamEnabled": "health_downstream_enabled",
        "downstreamHost": "downstream_host",
        "downstreamPath": "health_downstream_path",
        "timeout": "health_timeout_ms",
        "useJson": "health_json",
    },
    "info": {"enableServerInfo": "info_enabled"},
    "logging": {
        "downstreamEnabled": "logging_downstream_enabled",
        "downstreamFramework": "downstream_framework",
        "enabled": "logger_enabled",
        "logStart": "log_content_default_ms",
    },
    "chaos-monkey": {"enabled": "chaos_monkey_enabled"},
}
"""The original's names of settings and ours, by file."""
QUIET: dict[str, frozenset[str]] = {
    "kafka-producer": frozenset({"topic", "injectOpenTracing"}),
    "kafka-consumer": frozenset({*reactive.NAMES, *reactive.WITHOUT_COUNTERPART, "iteratorBackoffMs"}),
    "server": frozenset(
        {
            "enableHttp2", "keystorePass", "keyPass", "truststorePass", "dynamicPort", "minPort", "maxPort",
            "environment",
            "buildNumber", "serviceName", "bufferSize", "ioThreads", "workerThreads", "backlog", "alwaysSetDate",
            "serverString", "allowUnescapedCharactersInUrl", "bootstrapStoreName", "bootstrapStorePass",
            "startOnRegistryFailure", "shutdownGracefulPeriod", "shutdownTimeout", "maskConfigProperties",
        }
    ),
    "logging": frozenset({"downstreamHost"}),
}  # fmt: skip
"""Settings that change nothing that a caller sees, or have no counterpart."""
SERVED_HOOKS = {"ProducerStartupHook": "producer_enabled", "ActiveConsumerStartupHook": "consumers_enabled"}
_HOOKS_OF_PARTS = ksqldb.HOOKS | reactive.HOOKS | replaying.HOOKS
WITHOUT_COUNTERPART = {"AdminClientStartupHook", "AuditProducerStartupHook"}
"""Hooks without a counterpart: settings control their work, which is cluster health and audit records."""


@dataclass(frozen=True, slots=True)
class Original:
    """The configuration of a folder, as our settings."""

    settings: Mapping[str, Any]
    warnings: tuple[str, ...]
    """The settings that are not used, each with the reason."""


def original_config(
    path: Path, native: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> Original:
    """The settings that a folder of the original's files stands for. `native` are settings in our own form: they win,
    and an original setting that they replace is never refused. Raises OriginalConfigError.
    """
    read = folder.read(path, os.environ if environment is None else environment)
    return _Translator(read, native or {}).translated()


class _Translator:
    def __init__(self, read: Folder, native: Mapping[str, Any]) -> None:
        self._folder = read
        self._native = native
        self._settings: dict[str, Any] = {}
        self._warnings = read.warnings
        self._refusals: list[str] = []

    def translated(self) -> Original:
        for file in SAME_MEANING:
            self._same(file)
        self._streams()
        self._kafka()
        self._audit()
        self._components()
        self._who_calls()
        self._listener()
        if self._refusals:
            raise OriginalConfigError("; ".join(self._refusals))
        return Original(self._settings, tuple(self._warnings))

    def _same(self, file: str) -> None:
        """Translates settings that only have another name, and warns about settings without a counterpart."""
        for name, value in self._folder.files[file].items():
            ours = SAME_MEANING[file].get(name)
            if ours is not None:
                if value not in (None, ""):
                    self._settings[ours] = value
            elif name in QUIET.get(file, ()) or (file, name) in _HANDLED:
                continue
            else:
                self._warn(file, f"{name} is not known here, and not used")

    def _streams(self) -> None:
        self._settings |= streams.stream_settings(self._folder)
        for text in streams.stream_warnings(self._folder):
            self._warn(streams.FILE, text)

    def _kafka(self) -> None:
        producer = self._client("kafka-producer")
        consumer = self._client("kafka-consumer")
        own, others = producer.librdkafka, consumer.librdkafka
        addresses = own.pop("bootstrap.servers", ""), others.pop("bootstrap.servers", "")
        self._settings["bootstrap_servers"] = addresses[0]
        if addresses[1] != addresses[0]:
            others["bootstrap.servers"] = addresses[1]
        both = {name: value for name, value in own.items() if others.get(name) == value}
        self._settings["kafka_properties"] = both
        self._settings["producer_properties"] = {name: own[name] for name in own.keys() - both.keys()}
        self._settings["consumer_properties"] = {name: others[name] for name in others.keys() - both.keys()}
        for name, value in {**consumer.settings, **producer.settings}.items():
            self._settings[name] = value
        for name in consumer.settings.keys() & producer.settings.keys():
            if consumer.settings[name] != producer.settings[name] and name != "auto_register_schemas":
                self._warn(
                    "kafka-consumer", f"what became {name} is said in another way by kafka-producer.yml, which counts"
                )

    def _audit(self) -> None:
        found = audit_settings(self._folder.files)
        self._settings |= found.settings
        for file, text in found.warnings:
            self._warn(file, text)

    def _client(self, file: str) -> Translation:
        properties = self._folder.files[file].get("properties") or {}
        found = translate(properties, f"{file}.yml")
        self._warnings += found.warnings
        if "ssl.ca.location" not in self._native.get("kafka_properties", {}):
            self._refusals += found.refusals
        if file == "kafka-producer" and self._folder.files[file].get("injectCallerId"):
            self._settings["caller_id"] = self._folder.files["server"]["serviceId"]
        if file == "kafka-consumer":
            self._settings["auto_offset_reset"] = properties.get("auto.offset.reset", "earliest")
            self._read_bounds(self._folder.files[file])
        return found

    def _read_bounds(self, consumer: Mapping[str, Any]) -> None:
        if consumer.get("fetchMinBytes", -1) not in (-1, "-1"):
            self._warn("kafka-consumer", "fetchMinBytes is not used: instances say responseMinBytes themselves")
        server = consumer.get("serverId", "id")
        if server != "id":
            self._settings["name"] = server

    def _components(self) -> None:
        """Switches on the parts in the list of start-up hooks; without a list, all parts."""
        names = {hook.rpartition(".")[2] for hook in _hooks(self._folder.files["service"])}
        settings, refusals = ksqldb.ksqldb_settings(self._folder, names)
        self._settings |= settings | replaying.replay_settings(self._folder, names)
        self._settings |= reactive.reactive_settings(self._folder, names)
        for name in sorted(self._folder.files[ksqldb.FILE].keys() - ksqldb.NAMES):
            self._warn(ksqldb.FILE, f"{name} is not known here, and not used")
        if "ksqldb_ca_location" not in self._native:
            self._refusals += refusals
        if not names:
            return
        for hook, setting in SERVED_HOOKS.items():
            self._settings[setting] = hook in names
        for name in sorted(names - SERVED_HOOKS.keys() - _HOOKS_OF_PARTS - WITHOUT_COUNTERPART):
            self._warn("service", f"start-up hook {name} is not known here; topologies are named by streams")

    def _who_calls(self) -> None:
        security = self._folder.files["security"]
        key = (self._folder.files["client"].get("oauth") or {}).get("token", {}).get("key", {})
        self._settings["token_clock_skew_s"] = (security.get("jwt") or {}).get("clockSkewInSeconds", 60)
        for name, usual in (("enableVerifyScope", True), ("ignoreJwtExpiry", False)):
            if security.get(name, usual) is not usual:
                self._warn("security", f"{name} is not used: scopes and expiry of tokens are always looked at")
        if security.get("skipPathPrefixes"):
            self._warn(
                "security", "skipPathPrefixes is not used: who is asked for a token stands in the OpenAPI document"
            )
        if not (self._folder.files["client"].get("tls") or {}).get("verifyHostname", True):
            self._warn("client", "verifyHostname is not used: the names in certificates are always looked at")
        if not security.get("enableVerifyJwt", True) or "token_issuers" in self._native:
            return
        if key.get("server_url"):
            url = f"{str(key['server_url']).rstrip('/')}/{str(key.get('uri', '')).lstrip('/')}"
            self._settings["token_issuers"] = [{"jwks_url": url, "audience": key.get("audience") or ""}]
        elif self._folder.says("security.enableVerifyJwt"):
            self._refusals.append(
                "security.yml: enableVerifyJwt is true, and nobody says where the keys are: set "
                "client.tokenKeyServerUrl and client.tokenKeyUri, or token_issuers; or, to ask nobody for a token, "
                "security.enableVerifyJwt: false"
            )

    def _listener(self) -> None:
        server = self._folder.files["server"]
        is_tls = bool(server.get("enableHttps", True)) or not server.get("enableHttp", False)
        port = server.get("httpsPort", 8443) if is_tls else server.get("httpPort", 8080)
        host = str(server.get("ip", EVERY_ADDRESS[0]))
        if is_tls and not {"tls_certificate", "tls_key"} & self._native.keys():
            self._settings["tls"] = True
            self._certificate(server)
        asks = "token_issuers" in self._settings or "token_issuers" in self._native or "tls_client_ca" in self._settings
        if host in EVERY_ADDRESS and not asks and not self._native.get("allow_insecure"):
            self._warn(
                "server",
                f"listens on {LOOPBACK} only, not on every address: nobody is asked for a token; for every address set "
                "client.tokenKeyServerUrl, or allow_insecure",
            )
            host = LOOPBACK
        self._settings["listen"] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if server.get("enableRegistry"):
            self._warn("server", "enableRegistry is not used: control hears of this sidecar instead")

    def _certificate(self, server: Mapping[str, Any]) -> None:
        """Uses the folder's key store; without a key store, the sidecar makes its own certificate."""
        store = self._folder.path / str(server.get("keystoreName") or "server.keystore")
        if store.exists() and (path := self._pem(store, "server.yml: keystoreName", with_key=True)):
            self._settings |= {"tls_certificate": path, "tls_key": path}
            self._settings["tls_key_password"] = str(server.get("keyPass") or "")
        if server.get("enableTwoWayTls"):
            trusted = self._folder.path / str(server.get("truststoreName") or "server.truststore")
            if path := self._pem(trusted, "server.yml: truststoreName"):
                self._settings["tls_client_ca"] = path

    def _pem(self, store: Path, place: str, *, with_key: bool = False) -> Path | None:
        try:
            return pem_path(store, with_key=with_key)
        except NotPemError as error:
            self._refusals.append(f"{place}: {error}")
            return None

    def _warn(self, file: str, text: str) -> None:
        self._warnings.append(f"{file}.yml: {text}")


_HANDLED = {
    *(("server", name) for name in (
        "ip", "httpPort", "enableHttp", "httpsPort", "enableHttps", "keystoreName", "enableTwoWayTls", "truststoreName",
        "enableRegistry",
    )),
    *((file, name) for file in ("kafka-producer", "kafka-consumer") for name in ("properties", *MEMBERS)),
    ("kafka-producer", "injectCallerId"),
    ("kafka-consumer", "fetchMinBytes"),
    ("kafka-consumer", "serverId"),
    ("health", "enabled"),
}  # fmt: skip
"""Settings that the methods above translate one by one."""


def _hooks(service: Mapping[str, Any]) -> list[str]:
    for singleton in service.get("singletons") or ():
        hooks = singleton.get(HOOKS) if isinstance(singleton, dict) else None
        if isinstance(hooks, str):
            hooks = hooks.removeprefix("- ").split(",")
        if hooks:
            return [str(hook).strip() for hook in hooks if hook]
    return []


__all__ = ["Original", "OriginalConfigError", "original_config"]
