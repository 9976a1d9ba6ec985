"""The socket that the server listens on."""

from __future__ import annotations

import asyncio
import socket

import pytest

from service.server import _listen


def test_an_answer_never_waits_for_its_caller_to_acknowledge_the_head() -> None:
    async def nagle_is_off() -> bool:
        accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        async def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            accepted.set_result(bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
            writer.close()

        listener = _listen("127.0.0.1", 0)
        async with await asyncio.start_server(note, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.close()
            return await accepted

    assert asyncio.run(nagle_is_off())


def test_a_port_in_use_is_refused_with_its_address() -> None:
    first = _listen("127.0.0.1", 0)
    port = first.getsockname()[1]
    first.listen()
    with pytest.raises(OSError, match=f"127.0.0.1:{port} cannot be listened on"):
        _listen("127.0.0.1", port)
    first.close()
