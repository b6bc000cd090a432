"""`python -m services.router.forwarding`: the child process, as the router starts it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from mesh.rpc import record_rules
from mesh.telemetry import configure_logging
from services.router.forwarding.judging.filters import Filter
from services.router.forwarding.judging.transforms import Transforms
from services.router.forwarding.process import serve
from services.router.forwarding.records import Judge, Plan, Transformer


class _Judging:
    """Rules as the room that judges compiles them."""

    def judge(self, expression: str) -> Judge:
        return Filter(expression)

    def transformer(self, transforms: Sequence[record_rules.Transform]) -> Transformer:
        return Transforms(transforms)

    def content_plan(self, spec: record_rules.ContentRuleSpec) -> Plan:
        raise ValueError(f"content rules, like that of topic {spec.topic!r}, are not carried out by this version")


def main() -> None:
    configure_logging("record-rules")
    reports = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library that prints must not speak in our name
    serve(sys.stdin.buffer, reports, _Judging())


if __name__ == "__main__":
    main()
