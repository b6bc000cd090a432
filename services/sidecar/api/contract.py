"""The contracts, `openapi.yaml` and `rest_v2.yaml`, put to use: routes, the check of parameters and bodies, and the
scopes that a token needs.

An endpoint's method is named like its operation: `operation.route(self.subscribe)` gives the route, with the path and
the method that the document has. A request reaches the endpoint with parameters that fit; it finds them by
`parameters(request)`. The body it reads itself, within its bound, and has it checked by `operation.body`.
"""

import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.schema_check import SchemaCheck, types_of
from services.sidecar.faults import Fault, FaultKind, Violation, refused

DOCUMENT = Path(__file__).with_name("openapi.yaml")
REST_V2_DOCUMENT = Path(__file__).with_name("rest_v2.yaml")
METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")

Endpoint = Callable[[Request], Awaitable[Response]]
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value of a request outside its body."""

    name: str
    place: str
    """path, query or header."""
    required: bool
    key: str
    """The name in a request: ASGI has headers in lower case."""
    first_name: str
    """The first name of another parameter, if this parameter is its alias."""
    check: SchemaCheck

    def value(self, text: str) -> Any:
        """The text as the schema has it, if the text can be that."""
        types = types_of(self.check.schema)
        if "integer" in types and _WHOLE_NUMBER.fullmatch(text):
            return int(text)
        return text == "true" if "boolean" in types and text in ("true", "false") else text

    def missing(self, request: Request) -> Fault:
        if self.place == "query":
            return Fault(
                FaultKind.VALIDATOR_REQUEST_PARAMETER_QUERY_MISSING,
                f"Query parameter {self.name} is required on path {request.url.path} but not found in request.",
            )
        return Fault(
            FaultKind.VALIDATOR_REQUEST_PARAMETER_MISSING, f"Parameter {self.name} is required but is missing."
        )


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: a method of a path."""

    name: str
    method: str
    path: str
    scopes: tuple[frozenset[str], ...]
    """A token must have all scopes of one of these sets; none if no token is needed."""
    parameters: tuple[Parameter, ...]
    body_required: bool
    bodies: Mapping[str, SchemaCheck]
    """By content type."""
    items: Mapping[str, SchemaCheck]
    """The check of each line, for content types with a value on each line."""
    answers: Mapping[int, Mapping[str, Mapping[str, Any]]] = field(repr=False)
    """The schemas of the operation's answers, by status and content type.

    Only tests check answers, so only tests compile these schemas.
    """

    def route(self, endpoint: Endpoint) -> Route:
        """A route for the endpoint at the path of the document. The endpoint gets checked parameters."""

        @functools.wraps(endpoint)
        async def checked(request: Request) -> Response:
            request.scope["operation"] = self
            request.scope["parameters"] = self._parameters_of(request)
            return await endpoint(request)

        return ContractRoute(self, checked)

    def body(self, value: Any, content_type: str = "application/json", pointer: str = "") -> Any:
        """A body in the plain way (see `schema_check`); Fault with all that is wrong with it."""
        return self.bodies[content_type].plain(value, pointer)

    def item(self, value: Any, content_type: str, pointer: str = "") -> Any:
        """One line of a body, checked like `body`."""
        return self.items[content_type].plain(value, pointer)

    def _parameters_of(self, request: Request) -> dict[str, Any]:
        found: dict[str, Any] = {}
        violations: list[Violation] = []
        given: Mapping[str, Mapping[str, str]] = {
            "path": request.path_params,
            "query": request.query_params,
            "header": dict(reversed(request.headers.items())),  # the first of several counts, as in Starlette
        }
        for parameter in self.parameters:
            text = given[parameter.place].get(parameter.key)
            if text is not None:
                value = parameter.value(text)
                violations += parameter.check.violations(value, f"/{parameter.name}")
                found.setdefault(parameter.first_name, value)
            elif parameter.required:
                raise parameter.missing(request)
        if violations:
            raise refused(violations)
        return found


class ContractRoute(Route):
    """A route with its operation."""

    def __init__(self, operation: Operation, endpoint: Endpoint) -> None:
        super().__init__(operation.path, endpoint, methods=[operation.method], name=operation.name)
        self.methods = {operation.method}  # without HEAD, which would read records and throw them away
        self.operation = operation


class Contract:
    """All operations of a document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._components: Mapping[str, Any] = document.get("components", {})
        self._checks: dict[str, SchemaCheck] = {}
        self.operations: dict[str, Operation] = {}
        for path, item in document["paths"].items():
            for method in METHODS:
                if method in item:
                    operation = self._operation(path, method, item)
                    self.operations[operation.name] = operation

    @classmethod
    def load(cls, path: Path = DOCUMENT) -> "Contract":
        with path.open("rb") as text:
            return cls(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))

    def routes(self, *endpoints: Endpoint) -> list[Route]:
        """The routes of endpoints, each by its name."""
        return [self.operations[endpoint.__name__].route(endpoint) for endpoint in endpoints]

    def _operation(self, path: str, method: str, item: Mapping[str, Any]) -> Operation:
        given = item[method]
        body = self._resolved(given.get("requestBody", {}))
        content = body.get("content", {})
        answers = {int(status): self._resolved(answer) for status, answer in given["responses"].items()}
        return Operation(
            name=given["operationId"],
            method=method.upper(),
            path=path,
            scopes=tuple(frozenset(scope for scopes in one.values() for scope in scopes) for one in given["security"]),
            parameters=tuple(self._parameters([*item.get("parameters", ()), *given.get("parameters", ())])),
            body_required=body.get("required", False),
            bodies=self._checks_of(content, "schema"),
            items=self._checks_of(content, "x-item-schema"),
            answers={
                status: {content_type: one.get("schema", {}) for content_type, one in answer.get("content", {}).items()}
                for status, answer in answers.items()
            },
        )

    def _parameters(self, given: Iterable[Mapping[str, Any]]) -> Iterable[Parameter]:
        for one in map(self._resolved, given):
            name = one["name"]
            yield Parameter(
                name=name,
                place=one["in"],
                required=one.get("required", False),
                key=name.lower() if one["in"] == "header" else name,
                first_name=one.get("x-alias-of", name),
                check=self.check(one["schema"]),
            )

    def _checks_of(self, content: Mapping[str, Any], member: str) -> dict[str, SchemaCheck]:
        return {content_type: self.check(one[member]) for content_type, one in content.items() if member in one}

    def check(self, schema: Mapping[str, Any]) -> SchemaCheck:
        """The check of values against a schema of the document.

        A schema is compiled once for all operations that use it.
        """
        key = repr(schema)
        if key not in self._checks:
            self._checks[key] = SchemaCheck(schema, self._components)
        return self._checks[key]

    def _resolved(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        reference = given.get("$ref")
        if reference is None:
            return given
        kind, name = reference.removeprefix("#/components/").split("/")
        resolved: Mapping[str, Any] = self._components[kind][name]
        return resolved


def operation_of(request: Request) -> Operation:
    """The operation that the request calls."""
    operation: Operation = request.scope["operation"]
    return operation


def parameters(request: Request) -> dict[str, Any]:
    """Path, query and header parameters that were given, checked, by their first names."""
    given: dict[str, Any] = request.scope["parameters"]
    return given


CONTRACT = Contract.load()
REST_V2 = Contract.load(REST_V2_DOCUMENT)
"""The contract of Confluent's REST proxy, version 2, as far as this sidecar serves it."""
