"""The gateway's own requests to clusters, and how it reads the answers."""

import asyncio
from typing import TypeVar

from services.gateway.requests.knowledge import ClusterKnowledge, VersionRange
from services.gateway.requests.plan import Call, RawResponse, Sent, Unreachable
from services.gateway.upstream.connection import OUR_CLIENT_ID, BrokerConnection
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import MetadataRequest
from services.gateway.wire.messages.metadata import MetadataRequestTopic
from services.gateway.wire.primitives import WireError
from services.gateway.wire.schema import Struct

METADATA_VERSIONS = VersionRange(4, 12)
"""From 4 on a client can forbid that Metadata creates a topic; the gateway always forbids this."""

M = TypeVar("M", bound=Struct)


class CallFailedError(Exception):
    """A call of the gateway's own got no answer."""


async def ask(connection: BrokerConnection, call: Call, cls: type[M]) -> M:
    """The answer, on this very connection; raises CallFailedError if there is none."""
    answer: asyncio.Future[M | Unreachable] = asyncio.get_running_loop().create_future()

    def settle(outcome: RawResponse | Unreachable | Sent, _: bool) -> None:
        if not answer.done() and not isinstance(outcome, Sent):
            known = decoded(outcome, cls, call.cluster) if isinstance(outcome, RawResponse) else outcome
            answer.set_result(known)

    connection.submit(call, call.key, OUR_CLIENT_ID, settle)
    outcome = await answer
    if isinstance(outcome, Unreachable):
        raise CallFailedError(outcome.reason)
    return outcome


def metadata_call(knowledge: ClusterKnowledge, topics: tuple[str, ...], timeout_s: float) -> Call:
    """A Metadata call for the brokers and these topics. It creates no topic."""
    versions = knowledge.versions.get(ApiKey.METADATA, METADATA_VERSIONS)
    question = MetadataRequest([MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False)
    return Call(knowledge.name, question, min(METADATA_VERSIONS.high, versions.high), timeout_s=timeout_s)


def decoded(response: RawResponse, cls: type[M], cluster: str) -> M | Unreachable:
    """The response as a message; a response that can't be read counts as no answer."""
    try:
        return response.decode(cls)
    except WireError as error:
        return Unreachable(cluster, f"an answer that is not {cls.__name__} v{response.version}: {error}")
