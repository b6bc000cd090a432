"""How a call without a good answer is called: a change that was sent is never called a failure."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from grpc.aio import Metadata

from mesh.rpc.errors import RpcError, deadline_exceeded, denied, not_found, precondition, unavailable
from services.console.outcomes import Ending, failure

REFUSED_BY_THE_KERNEL = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Connection refused"


def of_grpc(code: grpc.StatusCode, words: str = "") -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, Metadata(), Metadata(), words)


def of_control(error: RpcError) -> grpc.aio.AioRpcError:
    status = error.status()
    return grpc.aio.AioRpcError(status.code, Metadata(), Metadata(*status.trailing_metadata), status.details)


@pytest.mark.parametrize(
    ("error", "asked", "wanted"),
    [
        (of_grpc(grpc.StatusCode.DEADLINE_EXCEEDED), Ending.AWAY, Ending.UNKNOWN),
        (of_grpc(grpc.StatusCode.UNAVAILABLE, "Socket closed"), Ending.AWAY, Ending.UNKNOWN),
        (of_grpc(grpc.StatusCode.UNAVAILABLE, REFUSED_BY_THE_KERNEL), Ending.AWAY, Ending.AWAY),
        (of_grpc(grpc.StatusCode.CANCELLED), Ending.AWAY, Ending.UNKNOWN),
        (of_grpc(grpc.StatusCode.INTERNAL, "RST_STREAM"), Ending.AWAY, Ending.UNKNOWN),
        (of_grpc(grpc.StatusCode.UNAUTHENTICATED, "no"), Ending.LOGIN_NEEDED, Ending.LOGIN_NEEDED),
        (of_control(deadline_exceeded("WAIT", "gateway-2 does not run it")), Ending.AWAY, Ending.UNKNOWN),
        (of_control(unavailable("NO_DATABASE", "PostgreSQL is away")), Ending.AWAY, Ending.AWAY),
        (of_control(denied("needs the role operator")), Ending.NOT_ALLOWED, Ending.NOT_ALLOWED),
        (of_control(not_found("rules/a", "no rule a")), Ending.ABSENT, Ending.ABSENT),
        (of_control(precondition("FROZEN", "mesh", "the mesh is frozen")), Ending.REFUSED, Ending.REFUSED),
    ],
)
def test_a_question_and_a_change_end_differently(error: grpc.aio.AioRpcError, asked: Ending, wanted: Ending) -> None:
    assert failure(error, decides=False).ending is asked
    assert failure(error, decides=True).ending is wanted


def test_control_speaks_for_itself() -> None:
    said = failure(of_control(precondition("FROZEN", "mesh", "the mesh is frozen")), decides=True)
    assert str(said) == "the mesh is frozen"
    assert said.details == ()


def test_an_unknown_outcome_says_that_the_change_may_have_been_made() -> None:
    assert "may have been made" in str(failure(of_grpc(grpc.StatusCode.DEADLINE_EXCEEDED), decides=True))
