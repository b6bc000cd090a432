"""Compiles rules to judges, transformers and plans."""

from __future__ import annotations

from collections.abc import Sequence

from mesh.judging.filters import Filter
from mesh.judging.transforms import Transforms
from mesh.rpc import record_rules
from services.router.forwarding.distribution import Distribution
from services.router.forwarding.judging.registry import SchemaRegistry
from services.router.forwarding.judging.values import reader_of
from services.router.forwarding.registry_access import RegistryAccess


class Compiler:
    """For all rules of a process. Each call raises ValueError where the text can't be compiled."""

    def __init__(self, registry: RegistryAccess) -> None:
        self._registry = registry

    def judge(self, expression: str) -> Filter:
        return Filter(expression)

    def transformer(self, transforms: Sequence[record_rules.Transform]) -> Transforms:
        return Transforms(transforms)

    def content_plan(self, rule_id: str, spec: record_rules.ContentRuleSpec) -> Distribution:
        """Each with a connection of its own to the registry: rules run in threads of their own."""
        access = self._registry
        registry = SchemaRegistry(access.url, access.user_info, access.ca_location) if access.url else None
        return Distribution(rule_id, spec, reader_of(spec.value_format, registry))
