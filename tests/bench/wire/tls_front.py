"""TLS before a sink, which has none: `python -m tests.bench.wire.tls_front PORT TARGET_PORT CERTIFICATE KEY`.

It stands on the sink's core and costs more than the sink, so a way that leads here has the gateway's CPU to tell, and
no throughput that is to be compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys

import uvloop

READ_BYTES = 1 << 20


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(port: int, target_port: int, context: ssl.SSLContext) -> None:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_sink, to_sink = await asyncio.open_connection("127.0.0.1", target_port, limit=READ_BYTES)
        await asyncio.gather(copy(reader, to_sink), copy(from_sink, writer))

    server = await asyncio.start_server(pass_on, "127.0.0.1", port, ssl=context, limit=READ_BYTES, backlog=1024)
    await server.serve_forever()


def main() -> None:
    port, target_port, certificate, key = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    uvloop.run(serve(int(port), int(target_port), context))


if __name__ == "__main__":
    main()
