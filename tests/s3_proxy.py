"""An HTTP proxy before the S3 server that breaks requests as networks and services do, and counts them.

Which request is broken, and how, a plan says; `every(7, LOST)` breaks each seventh. What S3 signs (the Host header
included) passes through as it came, so the server behind accepts it.
"""

import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

ERROR: Final = "500, after the request succeeded"
THROTTLED: Final = "503 SlowDown, nothing done"
TOO_MANY: Final = "429, nothing done"
RESET: Final = "connection reset, nothing done"
LOST: Final = "connection reset, after the request succeeded"
SLOW: Final = "answered late"
HELD: Final = "connection reset, and the request still under way: carried out when the test says so"
ALL: Final = (ERROR, THROTTLED, TOO_MANY, RESET, LOST, SLOW)
# Of answers that have a body. Others are given whole; a stalled one not at all.
STALLED: Final = "half an answer, and then nothing more"
TRUNCATED: Final = "half an answer, and the connection closed in order"
TRICKLING: Final = "an answer in small pieces"
IN_PART: Final = (STALLED, TRUNCATED, TRICKLING)

LATE_SECONDS: Final = 0.1
STALLED_SECONDS: Final = 60.0
PIECES: Final = 10
_REFUSAL: Final = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>by the proxy</Message></Error>"


class Asked(NamedTuple):
    """A request, as plans see it. `number` counts from 1."""

    number: int
    method: str
    path: str  # of the object, with the bucket, without the query
    create: bool  # only if there is nothing yet


Plan = Callable[[Asked], str | None]


def nothing(asked: Asked) -> None:
    return None


def every(count: int, *faults: str) -> Plan:
    """Break each `count`-th request, the faults taking turns."""

    def plan(asked: Asked) -> str | None:
        turn, rest = divmod(asked.number, count)
        return None if rest else faults[turn % len(faults)]

    return plan


def once(fault: str, condition: Callable[[Asked], bool]) -> Plan:
    """Break the first request that meets the condition."""
    left = [fault]

    def plan(asked: Asked) -> str | None:
        return left.pop() if left and condition(asked) else None

    return plan


class Proxy:
    """`plan` may be changed at any time."""

    def __init__(self, upstream: str) -> None:
        self.plan: Plan = nothing
        self.asked: list[Asked] = []
        self.broken: list[str] = []
        self.held: list[Callable[[], _Answer]] = []
        self.upstream = urlsplit(upstream).netloc
        self.closed = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Handler,), {"proxy": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def carry_out(self) -> list[int]:
        """What was held, now; gives how each was answered, to nobody."""
        with self._lock:
            held, self.held = self.held, []
        return [request().status for request in held]

    def note(self, method: str, target: str, create: bool) -> str | None:
        """What goes wrong with this request."""
        with self._lock:
            asked = Asked(len(self.asked) + 1, method, urlsplit(target).path.lstrip("/"), create)
            self.asked.append(asked)
            fault = self.plan(asked)
            if fault is not None:
                self.broken.append(fault)
        return fault


@contextmanager
def proxy_before(upstream: str) -> Iterator[Proxy]:
    proxy = Proxy(upstream)
    thread = threading.Thread(target=proxy.serve, name="s3-proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(10)


class _Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):
            super().handle_one_request()
            return
        self.close_connection = True

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.note(self.command, self.path, "If-None-Match" in self.headers)
        if fault in (THROTTLED, TOO_MANY):
            status, code = (503, b"SlowDown") if fault == THROTTLED else (429, b"TooManyRequests")
            return self._answer(_Answer(status, [], _REFUSAL % code))
        if fault == HELD:
            self.proxy.held.append(lambda: self._ask(body))
        if fault in (RESET, HELD):
            return self._reset()
        if fault == SLOW:
            threading.Event().wait(LATE_SECONDS)
        answer = self._ask(body)
        if fault == LOST:
            return self._reset()
        if fault == ERROR:
            answer = _Answer(500, [], _REFUSAL % b"InternalError")
        return self._answer(answer, fault)

    def _ask(self, body: bytes) -> _Answer:
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=30)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return _Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def _answer(self, answer: _Answer, fault: str | None = None) -> None:
        if fault == STALLED and not answer.body:
            self.proxy.closed.wait(STALLED_SECONDS)
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in answer.headers):
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self._write(answer.body, fault)

    def _write(self, body: bytes, fault: str | None) -> None:
        if fault == TRICKLING:
            size = -(-len(body) // PIECES) or 1
            for start in range(0, len(body), size):
                self.wfile.write(body[start : start + size])
                self.proxy.closed.wait(LATE_SECONDS / PIECES)
            return
        if fault in (STALLED, TRUNCATED):
            body, self.close_connection = body[: len(body) // 2], True
        self.wfile.write(body)
        if fault == STALLED:
            self.proxy.closed.wait(STALLED_SECONDS)

    def _reset(self) -> None:
        """Not an orderly end: the client's next read fails."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        return None

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815 (the server looks for these names)
