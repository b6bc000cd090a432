"""What client connections and upstream connections have in common."""

import asyncio
import socket

import pytest
import uvloop

from services.gateway.frame_stream import FrameStream


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_peer_that_is_gone_without_a_word_is_noticed(new_loop: type[asyncio.AbstractEventLoop]) -> None:
    async def options() -> tuple[int, int]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            stream = FrameStream(1000)
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
