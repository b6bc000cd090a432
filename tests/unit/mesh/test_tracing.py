"""Trace contexts in headers, the settings about traces, and what a process loads without them."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from mesh.tracing import TracingSettings, tracer_for
from mesh.tracing.context import NO_TRACE, Trace

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE_ID}-b7ad6b7169203331-01"
UNSAMPLED = f"00-{TRACE_ID}-b7ad6b7169203331-00"


@pytest.mark.parametrize(
    ("parent", "is_sampled"),
    [(SAMPLED, True), (UNSAMPLED, False), (f"{SAMPLED[:-2]}03", True), ("00-zz", False), ("", False)],
)
def test_the_header_says_whether_a_trace_is_recorded(parent: str, is_sampled: bool) -> None:
    trace = Trace.of_record([("TraceParent", parent.encode()), ("other", b"x"), ("tracestate", b"a=1")])
    assert (trace.is_sampled, trace.trace_id) == (is_sampled, TRACE_ID if len(parent) == 55 else "")


def test_two_contexts_in_one_record_are_none() -> None:
    assert Trace.of_record([("traceparent", SAMPLED.encode())] * 2) == NO_TRACE


def test_a_context_replaces_the_context_of_a_record_and_nothing_else() -> None:
    headers = [("a", b"1"), ("TRACEPARENT", UNSAMPLED.encode()), ("tracestate", b"a=1"), ("b", None)]
    assert Trace(SAMPLED).in_place_of(headers) == [("a", b"1"), ("b", None), ("traceparent", SAMPLED.encode())]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"tracing_rate": 0.1}, "tracing_rate is of use with tracing_endpoint alone"),
        ({"tracing_endpoint": "127.0.0.1:4317"}, "tracing_endpoint"),
        ({"tracing_endpoint": "http://user:secret@h:1"}, "tracing_endpoint"),
        ({"tracing_endpoint": "http://h:1", "tracing_rate": 1.1}, "tracing_rate"),
        ({"tracing_headers": {"authorization": "Bearer s3cret"}}, "write the value as"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as refused:
        TracingSettings(**given)  # type: ignore[arg-type]  # that is the test
    assert "s3cret" not in str(refused.value.errors(include_url=False, include_input=False))


def test_without_an_endpoint_no_process_loads_the_sdk() -> None:
    assert tracer_for(TracingSettings(), "gateway", "g", lambda *_: None) is None
    program = (
        "import sys; import services.gateway.downstream.gateway, services.sidecar.process; "
        "import services.router.forwarding.session; "
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == "[]"


def test_settings_go_to_another_process_with_references_instead_of_secrets(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret")
    settings = TracingSettings(tracing_endpoint="http://h:1", tracing_headers={"authorization": f"${{file:{secret}}}"})
    passed = settings.tracing.model_dump_json()
    assert "s3cret" not in passed
    assert TracingSettings.model_validate_json(passed) == settings
