"""The mesh's address for plain Kafka clients, and their errors when nothing answers there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from meshctl.endpoints import Endpoint, EndpointsError, Service, find

BOOTSTRAP_VARIABLE = "KAFKA_MESH_BOOTSTRAP"
EXIT_FAILED = 1  # something was not delivered, or not received
EXIT_UNAVAILABLE = 3  # nothing answers; the same code as meshctl's

F = TypeVar("F", bound=Callable[..., Any])


def bootstrap_option(command: F) -> F:
    """--bootstrap, given to the command as `bootstrap`: an Endpoint, found if it is not named."""

    def resolve(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Endpoint:
        try:
            return find(Service.GATEWAY, option=value, variable=BOOTSTRAP_VARIABLE)
        except EndpointsError as error:
            raise click.BadParameter(str(error)) from error

    return click.option(
        "--bootstrap",
        metavar="HOST:PORT,...",
        callback=resolve,
        help=f"The gateway. Default: ${BOOTSTRAP_VARIABLE}, .kafka-mesh/endpoints.json, 127.0.0.1:19092.",
    )(command)


class ClientError(click.ClickException):
    """Ends a client command with a sentence and an exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def no_answer(endpoint: Endpoint, cause: str) -> ClientError:
    """Nothing answers at `endpoint`."""
    return ClientError(
        f"no Kafka answers at {endpoint.address} ({endpoint.source}): {cause}. "
        "Start the mesh with `kafka-mesh up`, or name another address with --bootstrap",
        EXIT_UNAVAILABLE,
    )


def unrouted(topic: str) -> str:
    """The remedy when a topic is unknown."""
    return f"no rule routes {topic}, or its cluster does not have it: ask `meshctl explain {topic}`"
