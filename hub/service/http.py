"""The HTTP endpoint of a service: `/metrics` (Prometheus), `/healthz` (alive), `/readyz` (does its work).

Served from a thread of its own, so that a busy loop is seen as busy and not as a refused connection.
"""

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

DEFAULT_HOST: Final = "127.0.0.1"  # figures and lags are nobody's business outside; a flag opens it


class BadAddress(ValueError):
    """The address of the HTTP endpoint is not one."""


class CannotListen(Exception):
    """The address of the HTTP endpoint cannot be had now."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}, port {port}: {reason}; name another address for /metrics")


class Readiness(msgspec.Struct, frozen=True):
    """Whether a service does its work, and if not, why.

    Attributes:
        is_ready: it does.
        reasons: one line for each thing that is wrong.
    """

    is_ready: bool
    reasons: tuple[str, ...] = ()


def parse_address(text: str) -> tuple[str, int]:
    """Read `host:port`, `:port` or `port`; an IPv6 host stands in brackets.

    Raises:
        BadAddress: it is none of these.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or DEFAULT_HOST
    if not (port.isascii() and port.isdigit()) or not 0 <= int(port) <= 65535:
        raise BadAddress(f"bad address {text!r}: expected host:port or a port from 0 (any free one) to 65535")
    return host, int(port)


class _Ipv6Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class HttpEndpoint:
    """Serves the three pages until it is stopped.

    Args:
        host, port: where; port 0 takes a free one.
        registry: what `/metrics` shows.
        readiness: asked at each `/readyz`, from another thread: it only reads.

    Raises:
        CannotListen: the address is taken, or is none of this machine's.
    """

    def __init__(
        self, host: str, port: int, *, registry: CollectorRegistry, readiness: Callable[[], Readiness]
    ) -> None:
        server = _Ipv6Server if ":" in host else ThreadingHTTPServer
        try:
            self._server = server((host, port), _handler(registry, readiness))
        except OSError as error:
            raise CannotListen(host, port, error.strerror or str(error)) from error
        self._server.daemon_threads = True
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def start(self) -> None:
        """Begin to serve. Starting twice is fine."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._server.serve_forever, name="http-endpoint", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Serve no more. Stopping twice is fine."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join(timeout=5)
            self._thread = None
        self._server.server_close()


def _handler(registry: CollectorRegistry, readiness: Callable[[], Readiness]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that sends nothing does not keep its thread

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._send(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            elif path == "/healthz":
                self._send(200, "text/plain; charset=utf-8", b"ok\n")
            elif path == "/readyz":
                state = readiness()
                self._send(200 if state.is_ready else 503, "application/json", msgspec.json.encode(state) + b"\n")
            else:
                self._send(404, "text/plain; charset=utf-8", b"expected /metrics, /healthz or /readyz\n")

        def _send(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes every few seconds are not news."""

    return Handler
