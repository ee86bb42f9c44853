"""Subscriptions with an HTTP endpoint: one worker against a loop that posts the same bodies, and
against itself with metrics.

The server is in a process of its own, and answers at once. The loop has as many requests under way
as the worker, and no order, no retries and no progress to keep. A third process scrapes the
metrics every second, so that only the work of answering counts.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp
from aiohttp import web

import tailrace
from bench import payloads
from bench.measure import OURS, Scale, Timed, Timer, Turn, take_turns
from bench.report import Row, against, figures_of

COUNT = 20_000
KEYS = 1_000
VALUE_BYTES = 500
CONCURRENCY = 64
LOOP = "bare aiohttp loop"
UNSERVED = "no metrics served"
WAIT_S = 300.0

REASON = (
    "one thread of a Python process runs at a time: half of the worker's time is aiohttp's own, the"
    " rest makes headers, chooses the next message of each key and records its outcome; a second"
    " worker process works at the same time"
)


def rows(scale: Scale) -> list[Row]:
    """Measure deliveries over HTTP."""
    count = scale.count(COUNT)
    work = f"post {VALUE_BYTES} B to a local HTTP endpoint, {CONCURRENCY} at a time"
    with _server() as url:
        contenders = {OURS: _ours(count, url), LOOP: _loop(count, url)}
        rates = take_turns(work, contenders, scale.rounds)
        same = f"{work}, processor time with metrics"
        contenders = {OURS: _ours(count, url, scraped=True), UNSERVED: _ours(count, url)}
        served = take_turns(same, contenders, scale.rounds, Timed.CPU)
    goal = against(rates, LOOP, 0.7, reason=REASON)
    cost = against(served, UNSERVED, 0.98)
    return [
        Row(work, figures_of(rates, "messages"), (goal,)),
        Row(same, figures_of(served, "messages"), (cost,)),
    ]


def _pairs(count: int) -> Iterator[list[tuple[bytes, bytes]]]:
    pairs = payloads.pairs(KEYS, VALUE_BYTES)
    for start in range(0, count, KEYS):
        yield pairs[: min(KEYS, count - start)]


def _ours(count: int, url: str, *, scraped: bool = False) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        with ExitStack() as stack:
            hub = stack.enter_context(tailrace.open(directory / "hub", sync="none"))
            if scraped:
                stack.enter_context(_scraping(hub))
            topic = hub.create_topic("orders", bytes)
            crm = hub.create_subscription("crm", topic="orders", endpoint=url, allow_private=True)
            for pairs in _pairs(count):
                topic.push_many(pairs)
            with timer.running():
                worker = crm.start(concurrency=CONCURRENCY)
                end = time.monotonic() + WAIT_S
                while worker.stats().succeeded < count:
                    assert time.monotonic() < end, "the worker stands still"
                    time.sleep(0.005)
            worker.close()
        return count

    return turn


def _loop(count: int, url: str) -> Turn:
    async def post_all() -> None:
        bodies = iter([body for pairs in _pairs(count) for _, body in pairs])
        connector = aiohttp.TCPConnector(limit=CONCURRENCY)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def post_each() -> None:
                for body in bodies:
                    async with session.post(url, data=body) as response:
                        await response.read()
                        assert response.status == 204

            await asyncio.gather(*(post_each() for _ in range(CONCURRENCY)))

    def turn(_directory: Path, timer: Timer) -> int:
        with timer.running():
            asyncio.run(post_all())
        return count

    return turn


@contextmanager
def _scraping(hub: tailrace.Hub) -> Iterator[None]:
    """Serve metrics, which another process scrapes every second."""
    context = multiprocessing.get_context("spawn")
    with tailrace.serve_metrics(hub, 0) as server:
        process = context.Process(target=_scrape, args=(server.url,), daemon=True)
        process.start()
        try:
            yield
        finally:
            process.terminate()
            process.join()


def _scrape(url: str) -> None:
    while True:
        with urllib.request.urlopen(url) as answer:
            answer.read()
        time.sleep(1.0)


@contextmanager
def _server() -> Iterator[str]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/hook"
    finally:
        process.terminate()
        process.join()


def _serve(port: Connection) -> None:
    async def handle(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=204)

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/hook", handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(serve())
