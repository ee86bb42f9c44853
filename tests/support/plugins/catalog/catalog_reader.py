# catalog_reader.py
"""A reader of a catalog behind a paged HTTP API: its collections, and then its changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
from msgspec import Meta

from tailrace import Error, Mode, Op
from tailrace.readers import (
    Batch,
    Closeable,
    Preview,
    Reader,
    Record,
    Split,
    Until,
    from_records,
)

TIMEOUT_S = 3.0


class CatalogReader(Reader, frozen=True):
    """Reads the collections of a catalog, and follows its changes."""

    url: Annotated[str, Meta(description="The API.", examples=["http://localhost:8080"])]
    range_items: Annotated[
        int, Meta(description="The number of ids that a task copies in one piece.", ge=1)
    ] = 1000
    page_items: Annotated[int, Meta(description="The number of items of a page.", ge=1)] = 100

    def check(self) -> Preview:
        ends = self.get("/collections")["ends"]
        pages = {
            name: self.get(f"/items/{name}?from=0&to={end}&limit=5") for name, end in ends.items()
        }
        first = [(name, item) for name, items in pages.items() for item in items]
        return Preview(f"{len(ends)} collections of {self.url}", first[:5])

    def open(self, until: Until) -> CatalogSession:
        return CatalogSession(self, until)

    def get(self, path: str) -> Any:
        """Return what the API answers. An `OSError` if it does not answer now."""
        try:
            with urlopen(self.url + path, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code < 500 and error.code != 429:  # it would be refused again
                raise Error(f"{self.url}{path}: {error.code} {error.reason}") from error
            raise


class CatalogSession(Closeable):
    """Reads whichever splits its task owns."""

    def __init__(self, options: CatalogReader, until: Until) -> None:
        self._options = options
        self._until = until

    def splits(self) -> list[Split]:
        return [Split("collections")]

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        kind = split.id.partition("/")[0]
        if kind == "collections":
            yield self._divide()
        elif kind == "range":
            yield from self._copy(split, position)
        elif kind == "complete":
            yield self._complete(split, followed)
        else:
            yield from self._follow(split, position)

    def _divide(self) -> Batch:
        """Report the ranges of all collections, what ends their copies, and what follows."""
        found, step = self._options.get("/collections"), self._options.range_items
        children, completes = [], []
        for name, end in found["ends"].items():
            ranges = [
                Split(
                    f"range/{name}/{start}",
                    {"from": start, "to": min(start + step, end)},
                    namespace=name,
                    rows_expected=min(step, end - start),
                )
                for start in range(0, end, step)
            ]
            follows = tuple(each.id for each in ranges)
            completes.append(Split(f"complete/{name}", follows=follows, namespace=name))
            children += [*ranges, completes[-1]]
        follows = tuple(each.id for each in completes)
        children.append(Split("changes", {"after": found["cursor"]}, follows=follows))
        return Batch(None, None, children=tuple(children), finished=True)

    def _copy(self, split: Split, position: Any) -> Iterator[Batch]:
        """Copy the items of a range. The position is the next id, and the number of rows so far."""
        name, to, limit = split.namespace, split.data["to"], self._options.page_items
        at, rows = position or (split.data["from"], 0)
        finished = False
        while not finished:
            items = self._options.get(f"/items/{name}?from={at}&to={to}&limit={limit}")
            finished = len(items) < limit
            at, rows = items[-1]["id"] + 1 if items else to, rows + len(items)
            found = [(name, Op.INSERT, item) for item in items]
            yield _batch(Mode.COPY, found, [at, rows], finished=finished)

    def _complete(self, split: Split, followed: Mapping[str, Any]) -> Batch:
        """End the copy of a collection, once all its ranges are finished."""
        value = msgspec.json.encode({"rows": sum(rows for _, rows in followed.values())})
        end = Record(0, 0, Mode.COMPLETE, Op.NOOP, split.namespace.encode(), None, value)
        return Batch(from_records([end]), None, finished=True)

    def _follow(self, split: Split, position: Any) -> Iterator[Batch | None]:
        """Follow the changes. The position is the cursor of the last one."""
        after, limit = position or split.data["after"], self._options.page_items
        now = self._options.get("/collections")["cursor"] if self._until is Until.NOW else None
        while now is None or after < now:
            changes = self._options.get(f"/changes?after={after}&limit={limit}")
            if not changes:
                yield None
                continue
            after = changes[-1]["cursor"]
            found = [(each["collection"], Op[each["op"]], each["item"]) for each in changes]
            yield _batch(Mode.SYNC, found, after)


def _batch(
    mode: Mode, found: list[tuple[str, Op, Any]], position: Any, *, finished: bool = False
) -> Batch:
    """Return a batch of items, each with the name of its collection."""
    records = [
        Record(0, 0, mode, op, name.encode(), None, msgspec.json.encode(item))
        for name, op, item in found
    ]
    identities = [f"{name}/{item['id']}".encode() for name, _, item in found]
    columns = from_records(records) if records else None
    return Batch(columns, position, identities=identities, finished=finished)
