# catalog_api.py
"""A stand-in for the catalog: two collections, and a feed of their changes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

ENDS = {"books": 2500, "authors": 400}
CHANGES: list[dict[str, Any]] = []


def answer(path: str, given: dict[str, int]) -> Any:
    """Return the collections, a page of items, or a page of changes."""
    if path == "/collections":
        return {"ends": ENDS, "cursor": len(CHANGES)}
    if path == "/changes":
        return CHANGES[given["after"] : given["after"] + given["limit"]]
    ids = range(given["from"], given["to"])[: given["limit"]]
    return [{"id": id, "name": f"{path.removeprefix('/items/')} {id}"} for id in ids]


class Catalog(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        time.sleep(0.01)
        body = json.dumps(answer(url.path, {name: int(n) for name, n in parse_qsl(url.query)}))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve() -> Iterator[str]:
    """Serve the catalog, and yield its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Catalog) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def change(op: str, collection: str, item: dict[str, Any]) -> None:
    """Tell the feed of a change."""
    CHANGES.append({"cursor": len(CHANGES) + 1, "op": op, "collection": collection, "item": item})
