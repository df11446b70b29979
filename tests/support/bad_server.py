"""Web servers on this machine; one gives one file, well or badly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def served_by(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server whose requests a handler answers, each in a thread."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that hangs up

    server = Server(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serving(content: bytes, how: str = "well") -> Iterator[tuple[str, list[str | None]]]:
    """The URL of a file, and the ranges that were asked for.

    `how`: well; whole (ignores ranges); cut (half the bytes, then the connection ends); silent (half, then nothing);
    endless; page (HTML); refused (403).
    """
    asked: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Range"])
            first = int((self.headers["Range"] or "bytes=0-")[6:-1]) if how != "whole" else 0
            if first >= len(content) > 0:
                self.send_error(416)
                return
            if how == "refused":
                self.send_error(403)
                return
            self.send_response(206 if first else 200)
            self.send_header("Content-Type", "text/html" if how == "page" else "application/octet-stream")
            if how != "endless":
                self.send_header("Content-Length", str(len(content) - first))
            self.end_headers()
            if how in ("cut", "silent"):
                self.wfile.write(content[first : first + max(1, (len(content) - first) // 2)])
                self.wfile.flush()
                time.sleep(5 if how == "silent" else 0)
                return
            for _ in range(1000 if how == "endless" else 1):
                self.wfile.write(content[first:])

        def log_message(self, *words: object) -> None:
            pass

    with served_by(Handler) as address:
        yield f"{address}/set.bin", asked
