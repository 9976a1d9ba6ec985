"""uvicorn's HTTP protocol with a limit on the time in which the head of a request must arrive."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol_with_header_timeout(timeout_s: float) -> type[asyncio.Protocol]:
    """Return the protocol; a connection that sends its head byte by byte is closed after `timeout_s`."""

    class PatientProtocol(H11Protocol):
        """Closes a connection whose next request has begun, or should have, and whose head is not there in time."""

        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _watch(self) -> None:
            if self.conn.their_state is not h11.IDLE:
                self._forget()
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(timeout_s, self._close_if_idle)

        def _forget(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _close_if_idle(self) -> None:
            self._head_timer = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self.transport.close()

    return PatientProtocol
