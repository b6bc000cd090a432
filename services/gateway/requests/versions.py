"""The version in which a call reaches a cluster.

It is the client's version, or the nearest that the cluster supports if no field is lost.

Clients are offered the versions of any owner (`Reach.ONE_OWNER`), so an owner may be older than the client expects. The
handler has decoded the request, so the request can be written in another version. A call is not sent if the codec can't
write a part of it in that version. An older answer lacks fields only, and these have their defaults. This is not for
APIs whose versions differ in more than fields: the special timestamps of ListOffsets, the end of transactions.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from services.gateway.requests.plan import Call, Command, MeshView, Unreachable, ask_all
from services.gateway.wire.apis import api_name
from services.gateway.wire.codec import encode
from services.gateway.wire.primitives import WireError
from services.gateway.wire.schema import Struct

M = TypeVar("M", bound=Struct)


def fitted(call: Call, mesh: MeshView) -> Call | Unreachable:
    """The call in a version that its cluster supports."""
    spoken = mesh.clusters[call.cluster].versions if call.cluster in mesh.clusters else {}
    if not spoken:
        return call
    versions = spoken.get(call.key)
    if versions is None:
        return _unsupported(call, f"it has no {api_name(call.key)}")
    if call.version in versions:
        return call
    nearest = min(max(call.version, versions.low), versions.high)
    try:
        if isinstance(call.message, Struct):
            encode(call.message, nearest)
            return replace(call, version=nearest)
        loss = "the request passes untouched"
    except WireError as error:
        loss = str(error)
    return _unsupported(call, f"it speaks {api_name(call.key)} {versions}, not {call.version}: {loss}")


def highest_version(mesh: MeshView, cluster: str, api_key: int, ours: int) -> int:
    """The version for a call of the gateway itself: `ours`, or the cluster's newest if that is older."""
    knowledge = mesh.clusters.get(cluster)
    spoken = knowledge.versions.get(api_key) if knowledge else None
    return min(ours, spoken.high) if spoken else ours


def _unsupported(call: Call, why: str) -> Unreachable:
    return Unreachable(call.cluster, why, never_sent=True, unsupported=True)


def ask_fitting(mesh: MeshView, calls: Sequence[Call], cls: type[M]) -> Generator[Command, Any, list[M | Unreachable]]:
    """As `ask_all`, each call fitted to its cluster."""
    fitting = [fitted(call, mesh) for call in calls]
    answers = iter((yield from ask_all([call for call in fitting if isinstance(call, Call)], cls)))
    return [call if isinstance(call, Unreachable) else next(answers) for call in fitting]
