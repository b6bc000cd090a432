"""Holds what a sidecar answers against its contracts: status, content type, body. For every answer that a test gets."""

import re

import httpx

from services.sidecar.api.contract import CONTRACT, REST_V2, Contract, Operation

STREAMS = ("application/x-ndjson", "text/event-stream")
"""Answers that come in pieces; tests look at those themselves."""


def _pattern(operation: Operation) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{\w+\}", "[^/]+", re.sub(r"\.", r"\\.", operation.path)))


_PATTERNS = {
    contract: [(operation, _pattern(operation)) for operation in contract.operations.values()]
    for contract in (CONTRACT, REST_V2)
}


def operation_for(method: str, path: str, contract: Contract = CONTRACT) -> Operation | None:
    """What the contract has there; where two fit, that with fewer parameters."""
    fitting = [one for one, pattern in _PATTERNS[contract] if one.method == method and pattern.fullmatch(path)]
    return min(fitting, key=lambda one: one.path.count("{"), default=None)


def check(answer: httpx.Response, contract: Contract = CONTRACT) -> None:
    """AssertionError, saying what does not fit; for `event_hooks` of an httpx client."""
    request = answer.request
    operation = operation_for(request.method, request.url.path, contract)
    content_type = answer.headers.get("content-type", "").partition(";")[0]
    told = f"{request.method} {request.url.path} answered {answer.status_code} {content_type}"
    if operation is None:
        assert answer.status_code == 404, told
        assert answer.read() and (contract is REST_V2 or answer.json()["code"] == "ERR10048"), told
        return
    assert answer.status_code in operation.answers, f"{told}: no such status in the contract of {operation.name}"
    bodies = operation.answers[answer.status_code]
    if not bodies:
        assert not answer.read(), f"{told}: {answer.text}"
        return
    assert content_type in bodies, f"{told}: no such content type in the contract of {operation.name}"
    if content_type in STREAMS:
        return
    answer.read()
    body = answer.json() if content_type.endswith("json") else answer.text if "text" in content_type else None
    violations = contract.check(bodies[content_type]).violations(body)
    assert not violations, f"{told}: {violations}\n{answer.text[:1000]}"
