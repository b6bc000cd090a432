"""The names of settings in the schema of the Helm chart's values: those of each service that the chart leaves to users.

A name that the chart sets itself, or whose value is a secret, is not among them: a second variable of the same name
would be refused or hide the first one, and values of charts are no place for secrets.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

from pydantic import SecretStr

from docs.settings import SETTINGS
from docs.tables import ROOT

CHART = ROOT / "deploy" / "helm" / "kafka-mesh"
SCHEMA = CHART / "values.schema.json"
SERVICES = ("control", "router", "gateway", "pipeline", "console")
OTHERS = {"gateway": {"WORKERS", "NODE_PORTS"}}
"""Workers are for one machine without a load balancer; the Service of the chart has no ports of single nodes."""
_SET = re.compile(r'mesh\.set" \(list "([A-Z]+)" "([A-Z_]+)"')
_BY_SERVICE = re.compile(r'mesh\.(home|database)" \(list \$ "([A-Z]+)"')
_BY_HELPER = {"home": {"HOME_BOOTSTRAP_SERVERS", "HOME_PROPERTIES"}, "database": {"DATABASE_URL"}}


def set_by_the_chart(service: str) -> set[str]:
    """The names that templates give to containers of this service."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").glob("*.yaml")))
    found = {name for of, name in _SET.findall(text) if of == service.upper()}
    by_helper = [_BY_HELPER[helper] for helper, of in _BY_SERVICE.findall(text) if of == service.upper()]
    return found.union(*by_helper, {"NAME"})


def left_to_users(service: str) -> list[str]:
    """The names that the value `settings` of the service may have."""
    names = {name.upper() for name in SETTINGS[service].model_fields}
    return sorted(names - secret_settings(service) - set_by_the_chart(service) - OTHERS.get(service, set()))


def files() -> dict[Path, str]:
    """The schema with these names."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    by_secret = sorted(secret_settings("pipeline") - set_by_the_chart("pipeline"))
    schema["properties"]["pipeline"]["properties"]["secretSettings"]["propertyNames"] = {"enum": by_secret}
    for service in SERVICES:
        schema["$defs"][f"{service}Settings"]["propertyNames"] = {"enum": left_to_users(service)}
    return {SCHEMA: json.dumps(schema, indent=2) + "\n"}


def secret_settings(service: str) -> set[str]:
    """The names of settings that a Secret gives."""
    return {name.upper() for name, field in SETTINGS[service].model_fields.items() if _is_secret(field.annotation)}


def _is_secret(annotation: object) -> bool:
    return annotation is SecretStr or any(map(_is_secret, get_args(annotation)))
