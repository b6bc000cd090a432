"""docs/reference/names.md: the expressions by which the code accepts names."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import BaseSettings

from docs.tables import REFERENCE, filled, table
from mesh.topics import TOPIC_NAME
from meshctl import contexts
from services.control.domain.access import grants
from services.control.domain.clusters import clusters
from services.control.domain.records import checks as record_rules
from services.control.domain.rules import checks as rules
from services.control.domain.users import users
from services.gateway.settings import GatewaySettings
from services.pipeline.settings import PipelineSettings
from services.router.settings import RouterSettings
from services.sidecar.settings import SidecarSettings

PAGE: Path = REFERENCE / "names.md"
MEMBERS: dict[str, type[BaseSettings]] = {
    "gateway": GatewaySettings,
    "router": RouterSettings,
    "sidecar": SidecarSettings,
    "pipeline": PipelineSettings,
}


def written() -> str:
    rows = [
        ("a topic, here and on a cluster", TOPIC_NAME.pattern),
        ("a cluster", clusters.CLUSTER_NAME.pattern),
        ("a rule about topics, groups or clients", rules.RULE_ID.pattern),
        ("a mirror or content rule", record_rules.RULE_ID.pattern),
        ("a principal of `meshctl access`", grants.PRINCIPAL.pattern),
        ("a user of `meshctl users`", users.NAME.pattern),
        ("a context of `meshctl context`", contexts.NAME.pattern),
        *((f"`NAME` of a {member}", _of_setting(settings)) for member, settings in MEMBERS.items()),
    ]
    return filled(PAGE, {"": table(("name of", "whole name matches"), [(what, f"`{rule}`") for what, rule in rows])})


def _of_setting(settings: type[BaseSettings]) -> str:
    found = settings.model_json_schema()["properties"]["name"]
    longest = f"{{0,{found['maxLength']}}}" if "maxLength" in found else ""
    pattern: str = found["pattern"].removeprefix("^").removesuffix("$")
    return pattern.removesuffix("*") + longest if longest else pattern
