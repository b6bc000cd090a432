"""Information for operators and `/adm/server/info`: versions, machine, and every setting with its secrets masked.

The members are those of the original's answer. Members that only Java has are left out; our own members stand beside.
"""

import os
import platform
import re
import socket
import sys
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import confluent_kafka
from pydantic import BaseModel, SecretBytes, SecretStr

from mesh import VERSION
from services.sidecar.formats import Format

MASK = "*"
"""As the original shows a secret."""
ANYWHERE = ("192.0.2.1", 9)
"""An address for examples (RFC 5737). Connecting a datagram socket sends nothing, and shows the outgoing address."""

_SECRET_NAME = re.compile(r"password|secret|token|credential|private|jaas|api_?key", re.IGNORECASE)
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=[?&]p=)[^&\s]+|(?<=[?&]u=)[^&\s]+")
"""Before the host, or as InfluxDB 1 takes it: `?u=NAME&p=PASSWORD`."""
_STARTED = time.time()


def information(settings: BaseModel, *, fingerprint: str = "") -> dict[str, Any]:
    """As JSON. `fingerprint`: of the certificate that the listener shows."""
    return {
        "deployment": {"apiVersion": VERSION, "frameworkVersion": VERSION},
        "environment": {"host": _host(), "runtime": _runtime(), "system": _system()},
        "process": {"pid": os.getpid(), "startTime": int(_STARTED * 1000), "arguments": sys.argv[:1]},
        "security": {"serverFingerPrint": fingerprint},
        "component": {"sidecar": shown_settings(settings)},
    }


def shown_settings(settings: BaseModel) -> dict[str, Any]:
    """Settings by name, as JSON. Secrets (by type or by name) and logins in addresses are masked."""
    return {name: _shown(name, getattr(settings, name)) for name in type(settings).model_fields}


def _shown(name: str, value: object) -> Any:
    match value:
        case SecretStr() | SecretBytes():
            return MASK if value.get_secret_value() else ""
        case None | bool() | int() | float():
            return value
        case Format():
            return value.label
        case Enum():
            return _shown(name, value.value)
        case str() | Path():
            return MASK if value and _SECRET_NAME.search(name) else _LOGIN_IN_URL.sub(MASK, str(value))
        case BaseModel():
            return shown_settings(value)
        case Mapping():
            return {str(key): _shown(str(key), each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_shown(name, each) for each in value]
        case _:
            return _shown(name, str(value))


def _host() -> dict[str, str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ANYWHERE)
            ip = probe.getsockname()[0]
        except OSError:  # no route to anywhere
            ip = "127.0.0.1"
    return {"ip": ip, "hostname": socket.gethostname()}


def _runtime() -> dict[str, int]:
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    return {
        "availableProcessors": os.cpu_count() or 1,
        "freeMemory": os.sysconf("SC_AVPHYS_PAGES") * page if "SC_AVPHYS_PAGES" in os.sysconf_names else 0,
        "totalMemory": total,
        "maxMemory": total,
    }


def _system() -> dict[str, str]:
    return {
        "osName": platform.system(),
        "osVersion": platform.release(),
        "userTimezone": time.tzname[0],
        "pythonVersion": platform.python_version(),
        "confluentKafkaVersion": str(confluent_kafka.version()),
        "librdkafkaVersion": str(confluent_kafka.libversion()[0]),
    }
