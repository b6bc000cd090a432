"""What client connections and upstream connections have in common."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from services.gateway import frame_stream
from services.gateway.frame_stream import FrameStream
from tests.fixtures.waiting import WITHIN_S

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class Stream(FrameStream, asyncio.BufferedProtocol):
    """As an event loop takes it."""


@LOOPS
def test_a_peer_that_is_gone_without_a_word_is_noticed(new_loop: type[asyncio.AbstractEventLoop]) -> None:
    async def options() -> tuple[int, int]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            stream = Stream(1000)
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_connection(lambda: stream, *listening.getsockname())
            made = transport.get_extra_info("socket")
            found = made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), made.getsockopt(socket.IPPROTO_TCP, idle)
            stream.abort("seen")
            await asyncio.sleep(0)
            return found

    idle = getattr(socket, "TCP_KEEPIDLE", None)
    if idle is None:
        pytest.skip("this system does not tell the time of its keep-alive")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(options()) == (1, 60)


class Watched(Stream):
    def __init__(self) -> None:
        super().__init__(1000)
        self.gone = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.gone.set()


@LOOPS
def test_a_peer_that_never_reads_cannot_keep_a_closed_connection(
    new_loop: type[asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def closed() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            stream = Watched()
            await asyncio.get_running_loop().create_connection(lambda: stream, *listening.getsockname())
            stream.send(bytes(32 << 20))
            stream.close("enough")
            async with asyncio.timeout(WITHIN_S):
                await stream.gone.wait()

    monkeypatch.setattr(frame_stream, "LAST_WORDS_S", 0.1)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(closed())


async def heard(send: Callable[[FrameStream], None], size: int) -> bytes:
    """What comes to a peer that begins to read when all has been sent."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        stream = Stream(1000)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: stream, *listening.getsockname())
        peer, _ = await loop.sock_accept(listening)
        with peer:
            send(stream)
            found = bytearray()
            while len(found) < size:
                found += await loop.sock_recv(peer, 1 << 20)
        stream.abort("seen")
        return bytes(found)


@LOOPS
@pytest.mark.parametrize("sizes", [[1] * 2000, [5_000_000], [3, 0, 700_000, 1, 9_000_000, 2] * 2, [40_000] * 600])
def test_what_is_sent_in_many_pieces_arrives_in_order_whatever_the_socket_takes(
    new_loop: type[asyncio.AbstractEventLoop], sizes: list[int]
) -> None:
    pieces = [bytes([index % 251]) * size for index, size in enumerate(sizes)]

    def send(stream: FrameStream) -> None:
        for start in range(0, len(pieces), 700):
            stream.send(*pieces[start : start + 700])

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(asyncio.wait_for(heard(send, sum(sizes)), WITHIN_S)) == b"".join(pieces)


@LOOPS
@pytest.mark.parametrize("sizes", [[9_000_000], [3, 9_000_000, 2, 1]])
def test_what_the_socket_has_not_taken_is_kept_when_its_buffer_is_used_again(
    new_loop: type[asyncio.AbstractEventLoop], sizes: list[int]
) -> None:
    def send(stream: FrameStream) -> None:
        buffers = [bytearray(b"a" * size) for size in sizes]
        stream.send(*[memoryview(buffer) for buffer in buffers])
        for buffer in buffers:
            buffer[:] = bytes(len(buffer))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(asyncio.wait_for(heard(send, sum(sizes)), WITHIN_S)).count(b"a") == sum(sizes)


class Kept(Stream):
    def __init__(self) -> None:
        super().__init__(1000)
        self.frames: list[bytes] = []

    def frame_received(self, frame: memoryview, owned: bool) -> None:
        self.frames.append(bytes(frame))

    def read(self, sent: bytes) -> None:
        """The first half of what an event loop does for a readable socket; `buffer_updated` is the other one."""
        self.get_buffer(-1)[: len(sent)] = sent


def test_a_loop_in_another_thread_may_read_between_the_two_halves_of_a_read() -> None:
    def frame(letter: bytes) -> bytes:
        return (83).to_bytes(4) + letter * 83

    with ThreadPoolExecutor(1) as elsewhere:
        here, there = Kept(), elsewhere.submit(Kept).result()
        here.read(frame(b"a"))
        elsewhere.submit(there.read, frame(b"b")).result()
        here.buffer_updated(87)
        elsewhere.submit(there.buffer_updated, 87).result()
    assert (here.frames, there.frames) == ([frame(b"a")], [frame(b"b")])
