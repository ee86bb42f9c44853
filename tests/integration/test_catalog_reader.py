"""The reader of the page on plug-ins: a paged API that tasks copy and follow while they are killed
and the API fails."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace import Mode, Source
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.plugins.catalog import catalog_api
from tests.support.plugins.catalog.catalog_reader import CatalogReader
from tests.support.processes import Child, Report
from tests.support.topics import all_messages
from tests.support.waiting import until

pytestmark = [pytest.mark.part("sources"), pytest.mark.timeout(900)]

TASKS = 3
SEED = 7
ITEMS = sum(catalog_api.ENDS.values())
COLLECTIONS = len(catalog_api.ENDS)


class FailingCatalog(catalog_api.Catalog):
    """Refuses a request now and then, or answers nothing."""

    chance = random.Random(SEED)

    def do_GET(self) -> None:  # noqa: N802
        drawn = self.chance.random()
        if drawn < 0.02:
            self.send_error(503)
        elif drawn < 0.04:
            self.close_connection = True
        else:
            super().do_GET()


class QuietServer(ThreadingHTTPServer):
    """A server that does not print when a client is killed."""

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def failing_catalog() -> Iterator[str]:
    with QuietServer(("127.0.0.1", 0), FailingCatalog) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def read_until_killed(report: Report, directory: Path, url: str) -> None:
    """Child: one task of the catalog."""
    with tailrace.open(directory / "hub", sync="none") as hub:
        report("started")
        Source("catalog", CatalogReader(url, range_items=50, page_items=10)).run(hub)


def has_read(hub: tailrace.Hub, records: int) -> bool:
    if "catalog.commits" not in hub.topics():
        return False
    return sum(hub.topic("catalog.commits").storage_topics[0].ends) >= records


def test_each_item_and_change_is_read_once_while_each_task_is_killed_and_the_api_fails(
    tmp_path: Path, record_evidence: RecordEvidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = count("catalog kills", test=6, soak=60)
    monkeypatch.setattr(catalog_api, "CHANGES", [])
    with failing_catalog() as url, tailrace.open(tmp_path / "hub", sync="none") as hub:
        tasks = [Child(read_until_killed, tmp_path, url) for _ in range(TASKS)]
        for number in range(kills):
            # Changes of before the first item are not read: the first split fixes the cursor.
            until(partial(has_read, hub, max(1, ITEMS * number // kills)))
            for id in range(20):
                catalog_api.change("UPDATE", "books", {"id": id, "kill": number})
            list(tasks.pop(0).kill())  # so each of them is killed
            tasks.append(Child(read_until_killed, tmp_path, url))
        until(partial(has_read, hub, ITEMS + COLLECTIONS + len(catalog_api.CHANGES)))
        for task in tasks:
            list(task.kill())
        found = all_messages(hub.topic("catalog.commits"), control=True)
        letters = sum(hub.topic("catalog.dead-letters").storage_topics[0].ends)
    copied = Counter((each.key, each.value["id"]) for each in found if each.mode is Mode.COPY)
    expected = {(name, id) for name, end in catalog_api.ENDS.items() for id in range(end)}
    ends: dict[Any, Any] = {
        each.key: each.value["rows"] for each in found if each.mode is Mode.COMPLETE
    }
    changes = [each.value for each in found if each.mode is Mode.SYNC]
    wrong = sum((copied - Counter(expected)).values()) + len(expected - copied.keys())
    record_evidence("sources", f"items of an API, {kills} kills", ITEMS, [SEED], wrong)
    assert wrong == 0
    assert ends == catalog_api.ENDS
    assert changes == [each["item"] for each in catalog_api.CHANGES]
    assert len(found) == ITEMS + COLLECTIONS + len(changes)
    assert letters == 0
