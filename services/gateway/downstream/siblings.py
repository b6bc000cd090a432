"""Share sessions in a gateway with several workers: each session is kept by one worker, which owns it.

Theory of operation
1. The owner follows from the group and the member alone, so every worker knows it and asks nobody.
2. A request about a session of another worker goes there by a link. A link is a pair of sockets: the owner gets one end
   through its `inbox`, with what the client has said of itself. To the owner it is a connection of that client, so a
   session that began on the link ends with the link, and rules about clients, counts and bounds hold there.
3. A client's connection has one link to each owner that it needs, and the links end with the connection.
4. If the owner is gone, the client hears that there is no such session. It begins a new one, as when a broker was
   restarted.
"""

import asyncio
import json
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Protocol
from zlib import crc32

import structlog

from services.gateway import metrics
from services.gateway.authentication.principal import Principal
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.slots import Slot
from services.gateway.requests.groups.share_sessions import Member
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import CALL_TIMEOUT_S, Answer, RawResponse, Request
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, parse_response_header
from services.gateway.wire.messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from services.gateway.wire.primitives import INT32, WireError

KEPT_BY_OWNERS: Final = frozenset({ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE})
INBOX_KIND: Final = socket.SOCK_DGRAM if sys.platform == "darwin" else socket.SOCK_SEQPACKET
MOST_SAID_BYTES: Final = 16_384
"""The longest introduction: names and addresses."""
TAKEN_AT_ONCE: Final = 64
"""Links taken in one turn of the event loop, before other work goes on."""
GONE: Final = ErrorCode.SHARE_SESSION_NOT_FOUND
GONE_TEXT: Final = worded(GONE, "the worker that kept the session of this member does not answer")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Introduction:
    """The identity of a client, as known to the worker that has the client's connection."""

    peer: str
    address: str
    proved: Principal
    software_name: str
    software_version: str
    asked_node: int | None

    @classmethod
    def of(cls, session: Session) -> "Introduction":
        return cls(**{name: getattr(session, name) for name in cls.__slots__})

    @classmethod
    def read(cls, said: bytes) -> "Introduction":
        """From the bytes of `written`."""
        told = json.loads(said)
        proved = told.pop("proved")
        groups, scopes = tuple(proved.pop("groups")), tuple(proved.pop("scopes"))
        return cls(proved=Principal(groups=groups, scopes=scopes, **proved), **told)

    def written(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def apply(self, session: Session) -> None:
        for name in self.__slots__:
            setattr(session, name, getattr(self, name))
        session.prove(self.proved)
        session.has_full_names = True


Meet = Callable[[Introduction], asyncio.BufferedProtocol]


class Siblings:
    """The workers of one gateway, as one of them sees the others."""

    def __init__(self, number: int, inbox: socket.socket, doors: Sequence[socket.socket]) -> None:
        """`doors`: to the inbox of each worker, in the order of their numbers, which begin at 1."""
        inbox.setblocking(False)
        self._number = number
        self._inbox = inbox
        self._doors = doors
        self._meeting: set[asyncio.Task[None]] = set()

    @property
    def is_first(self) -> bool:
        """Whether this worker does what one worker does for all. The supervisor starts the worker again if it ends."""
        return self._number == 1

    def owner_of(self, member: Member) -> int | None:
        """The other worker that keeps the member's session; None if this one does."""
        group_id, member_id = member
        owner = 1 + crc32(f"{group_id}\0{member_id}".encode()) % len(self._doors)
        return None if owner == self._number else owner

    def link(self, owner: int, introduction: Introduction) -> socket.socket:
        """Our end of a new link. OSError: the owner takes none now."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                door = self._doors[owner - 1]
                socket.send_fds(door, [introduction.written()], [theirs.fileno()], socket.MSG_DONTWAIT)
            except OSError:
                ours.close()
                raise
        return ours

    def serve(self, meet: Meet) -> None:
        """Take the links of other workers from here on."""
        asyncio.get_running_loop().add_reader(self._inbox.fileno(), self._take, meet)

    def close(self) -> None:
        if self._inbox.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._inbox.fileno())
            self._inbox.close()
        for task in self._meeting:
            task.cancel()

    def _take(self, meet: Meet) -> None:
        for _ in range(TAKEN_AT_ONCE):
            try:
                said, descriptors, _, _ = socket.recv_fds(self._inbox, MOST_SAID_BYTES, 1)
            except BlockingIOError:
                return
            except OSError:
                said, descriptors = b"", []
            if not said:  # the supervisor is gone: the line tells what is to be done then
                asyncio.get_running_loop().remove_reader(self._inbox.fileno())
                return
            if not descriptors:
                log.error("a link of another worker was refused: too many open files")
                continue
            task = asyncio.create_task(_met(socket.socket(fileno=descriptors[0]), meet, Introduction.read(said)))
            self._meeting.add(task)
            task.add_done_callback(self._meeting.discard)


async def _met(link: socket.socket, meet: Meet, introduction: Introduction) -> None:
    link.setblocking(False)
    try:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: meet(introduction), link)
    except BaseException:
        link.close()
        raise


class Client(Protocol):
    """The connection whose requests go to other workers."""

    session: Session

    def slot_answered(self, slot: Slot, answer: Answer) -> None: ...


Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class SiblingWay:
    """The way of one client's requests to the workers that own its share sessions."""

    __slots__ = ("_links", "_mesh", "_tasks", "client")

    def __init__(self, client: Client, mesh: Mesh) -> None:
        self.client = client
        self._mesh = mesh
        self._links: dict[int, Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def takes(self, slot: Slot) -> bool:
        """Whether the request goes to another worker; if so, it has been sent."""
        siblings, request = self._mesh.siblings, slot.request
        if siblings is None or request is None or request.api_key not in KEPT_BY_OWNERS:
            return False
        try:
            member, wait_s = _read(request)
        except WireError:
            return False  # its plan fails by it, too
        owner = siblings.owner_of(member)
        if owner is None:
            return False
        task = asyncio.create_task(self._carry(siblings, slot, request, owner, wait_s + 2 * CALL_TIMEOUT_S))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def close(self) -> None:
        """The client is gone."""
        for task in self._tasks:
            task.cancel()
        for owner in list(self._links):
            self._cut(owner)

    def _cut(self, owner: int) -> None:
        link = self._links.pop(owner, None)
        if link is not None:
            link[1].close()
            metrics.share_session_links.dec()

    async def _carry(self, siblings: Siblings, slot: Slot, request: Request, owner: int, within_s: float) -> None:
        answer: Answer
        try:
            async with asyncio.timeout(within_s):
                frame = await self._asked(siblings, bytes(request.frame), owner)
            header = parse_response_header(frame, SIZE_BYTES, len(frame), request.api_key, request.version)
            answer = RawResponse(memoryview(frame), header.body_offset, request.version)
        except (OSError, EOFError, TimeoutError) as error:
            log.warning("the worker that keeps a share session does not answer", owner=owner, reason=repr(error))
            self._cut(owner)
            answer = _gone(request.api_key)
        self.client.slot_answered(slot, answer)

    async def _asked(self, siblings: Siblings, frame: bytes, owner: int) -> bytearray:
        """A connection's requests about share sessions come one by one, and so do the answers on its links."""
        link = self._links.get(owner)
        if link is None:
            ours = siblings.link(owner, Introduction.of(self.client.session))
            link = self._links[owner] = await asyncio.open_unix_connection(sock=ours)
            metrics.share_session_links.inc()
        reader, writer = link
        writer.write(frame)
        await writer.drain()
        size = await reader.readexactly(SIZE_BYTES)
        return bytearray(size + await reader.readexactly(INT32.unpack(size)[0]))


def _read(request: Request) -> tuple[Member, float]:
    """The member whose session the request is about, and how long the request may wait for records, in seconds."""
    if request.api_key == ApiKey.SHARE_FETCH:
        fetch = request.decode(ShareFetchRequest)
        return (fetch.group_id or "", fetch.member_id or ""), max(0, fetch.max_wait_ms) / 1000
    acknowledge = request.decode(ShareAcknowledgeRequest)
    return (acknowledge.group_id or "", acknowledge.member_id or ""), 0.0


_ANSWERS: Mapping[int, type[ShareFetchResponse] | type[ShareAcknowledgeResponse]] = {
    ApiKey.SHARE_FETCH: ShareFetchResponse,
    ApiKey.SHARE_ACKNOWLEDGE: ShareAcknowledgeResponse,
}


def _gone(api_key: int) -> Answer:
    return _ANSWERS[api_key](error_code=GONE, error_message=GONE_TEXT)
