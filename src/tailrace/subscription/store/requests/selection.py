"""Which dead letters a request is for: by key, position, error or time.

The selection is resolved to keys and letters when the request is made, by what is stored then. A
redelivery by key, error or time selects keys: those whose first letter meets the conditions. All
letters of such a key are redelivered, in order. A redelivery by position, one that may break the
order, and a discard select exactly the letters that meet the conditions.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Final

from tailrace.backend.contract import Backend
from tailrace.errors import InvalidValue
from tailrace.regular_expression import check_expression, search
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.shard.requests.request import (
    TARGETS_MAX,
    LetterPlace,
    RequestAction,
    RequestTarget,
)
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.requests.letters import (
    PendingLetter,
    letter_position,
    read_last_errors,
    read_letters,
)
from tailrace.topic.audit_log import NAMED_MAX

SELECTED_MAX: Final = 100_000
"""The most keys and letters that one selection names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSelection:
    """The conditions that a dead letter has to meet. Without any, all letters meet them.

    `positions` are those of letters, or of messages in the topic; they exclude other conditions.
    `error` is a text that the last error has, `error_pattern` a regular expression that is found in
    it. A letter meets the times if it became a dead letter from `after_ms` up to, not including,
    `before_ms`.
    """

    keys: tuple[bytes, ...] = ()
    positions: tuple[str, ...] = ()
    error: str = ""
    error_pattern: str = ""
    after_ms: int | None = None
    before_ms: int | None = None

    def __post_init__(self) -> None:
        if self.error_pattern:
            check_expression("error_pattern", self.error_pattern)
        if self.positions and (self.keys or self.conditional):
            raise InvalidValue("positions", self.positions, "positions without other conditions")

    @property
    def conditional(self) -> bool:
        """True if it depends on the error or the time of a letter."""
        times = self.after_ms is not None or self.before_ms is not None
        return bool(self.error or self.error_pattern) or times


@dataclass(frozen=True, slots=True)
class SelectedLetters:
    """The targets of a request by shard, and what they are at present.

    `letters` and `keys` are the numbers of letters and of keys. `skipped` are letters that meet the
    conditions and are not redelivered, because they are behind others of their key. `left` are
    letters, or keys, that are too many for one request.
    """

    targets: dict[int, list[RequestTarget]]
    letters: int
    keys: int
    skipped: int = 0
    left: int = 0


class _NamedLetters(Enum):
    """The letters that the targets of a request name."""

    NONE = "none: a target is a key"
    FEW = "all of a key that has few, so that the audit can name them; else none"
    CHOSEN = "those that meet the conditions"
    ALL = "all of a key whose first one meets the conditions"

    @classmethod
    def by(
        cls,
        action: RequestAction,
        policy: OnDeadLetter,
        selection: LetterSelection,
        any_order: bool,
    ) -> _NamedLetters:
        blocks = policy is OnDeadLetter.BLOCK
        if action is RequestAction.DISCARD:
            whole = blocks and not (selection.positions or selection.conditional)
            return cls.FEW if whole else cls.CHOSEN
        if selection.positions or any_order:
            return cls.CHOSEN
        return cls.NONE if blocks else cls.ALL


_CHOSEN_MAX: Final = {_NamedLetters.CHOSEN: SELECTED_MAX, _NamedLetters.FEW: NAMED_MAX}


@dataclass(slots=True)
class _KeyLetters:
    """The letters of a key."""

    shard: int
    named: _NamedLetters
    last: LetterPlace
    count: int = 0
    first_meets: bool = False
    places: list[LetterPlace] = field(default_factory=list)
    """All of them, up to the bound of a request, if they are named."""
    chosen: list[LetterPlace] = field(default_factory=list)
    """Those that meet the conditions, up to the bound of a selection, if they are named."""
    behind: PendingLetter | None = None
    """The first one that meets the conditions and is behind one that does not."""
    met: int = 0

    def add(self, letter: PendingLetter, meets: bool) -> None:
        if not self.count:
            self.first_meets = meets
        if meets:
            if self.met != self.count and self.behind is None:
                self.behind = letter
            self.met += 1
            if len(self.chosen) < _CHOSEN_MAX.get(self.named, 0):
                self.chosen.append(letter.place)
        self.count += 1
        self.last = letter.place
        every = self.named is _NamedLetters.ALL and self.first_meets
        if every and len(self.places) < TARGETS_MAX:
            self.places.append(letter.place)


def select_letters(
    backend: Backend,
    stored: StoredSubscription,
    selection: LetterSelection,
    action: RequestAction,
    *,
    break_order: bool = False,
) -> SelectedLetters:
    """Return what a request would be for.

    `InvalidValue` if a key has no dead letter, if there is no dead letter at a position, or if it
    is not the first of its key and would be redelivered, unless `break_order`.
    """
    named = _NamedLetters.by(action, stored.definition.policy, selection, break_order)
    keys, unkeyed = _group(backend, stored, selection, named)
    if action is RequestAction.DISCARD:
        parts = _discards(named, keys)
    else:
        parts = _redeliveries(stored.name, selection, named, keys, break_order)
    return _sum(parts, unkeyed)


def _group(
    backend: Backend, stored: StoredSubscription, selection: LetterSelection, named: _NamedLetters
) -> tuple[dict[bytes, _KeyLetters], dict[LetterPlace, int]]:
    """Return the letters of each key, and those without a key that meet the conditions, with their
    shards."""
    shards = stored.keys
    meets = _condition(backend, stored.name, selection)
    wanted = {*selection.positions}
    keys: dict[bytes, _KeyLetters] = {}
    unkeyed: dict[LetterPlace, int] = {}
    for letter in read_letters(backend, stored, selection.keys):
        place = letter.place
        if wanted:
            names = {letter.origin, letter_position(stored.name, place)} & {*selection.positions}
            wanted -= names
            found = bool(names)
        else:
            found = not selection.positions and meets(letter)
        if letter.key is not None:
            shard = shards.of_key(letter.key)
            keys.setdefault(letter.key, _KeyLetters(shard, named, place)).add(letter, found)
        elif found:
            pushed = Origin.parse(letter.origin).partition
            unkeyed[place] = shards.of_pushed(pushed.storage, pushed.number)
    _check_found(stored.name, selection, keys, wanted)
    return keys, unkeyed


def _condition(
    backend: Backend, name: str, selection: LetterSelection
) -> Callable[[PendingLetter], bool]:
    keys, pattern = {*selection.keys}, selection.error_pattern
    last: Mapping[str, str] = {}
    if selection.error or pattern:
        last = read_last_errors(backend, name)

    @cache
    def right_error(error: str) -> bool:
        return selection.error in error and (not pattern or search(pattern, (error,))[0])

    def meets(letter: PendingLetter) -> bool:
        after, before = selection.after_ms, selection.before_ms
        return (
            (not keys or letter.key in keys)
            and (after is None or letter.time_ms >= after)
            and (before is None or letter.time_ms < before)
            and right_error(last.get(letter.origin, letter.error))
        )

    return meets


def _check_found(
    name: str,
    selection: LetterSelection,
    keys: Mapping[bytes, _KeyLetters],
    missing: set[str],
) -> None:
    remedy = f"list them: tailrace dlq {name} list"
    for position in selection.positions:
        if position in missing:
            raise InvalidValue("position", position, f"a pending dead letter of {name}", remedy)
    for key in selection.keys:
        if key not in keys:
            text = key.decode("utf-8", "backslashreplace")
            raise InvalidValue("key", text, f"a key with dead letters in {name}", remedy)


@dataclass(frozen=True, slots=True)
class _Part:
    """What is selected of a key. `names` is the number of keys and letters that it names."""

    shard: int
    target: RequestTarget | None
    letters: int = 0
    skipped: int = 0
    left: int = 0

    @property
    def names(self) -> int:
        return 0 if self.target is None else max(1, len(self.target.letters))


def _redeliveries(
    name: str,
    selection: LetterSelection,
    named: _NamedLetters,
    keys: Mapping[bytes, _KeyLetters],
    break_order: bool,
) -> Iterator[_Part]:
    for key, found in keys.items():
        if selection.positions and found.behind is not None and not break_order:
            raise _not_first(name, key, found.behind)
        if named is _NamedLetters.CHOSEN:
            if some := tuple(found.chosen[:TARGETS_MAX]):
                left = found.met - len(some)
                yield _Part(found.shard, RequestTarget(key, some), len(some), left=left)
        elif not found.first_meets:
            yield _Part(found.shard, None, skipped=found.met)
        elif named is _NamedLetters.NONE:
            yield _Part(found.shard, RequestTarget(key), found.count)
        else:
            places = tuple(found.places)
            left = found.count - len(places)
            yield _Part(found.shard, RequestTarget(key, places), len(places), left=left)


def _discards(named: _NamedLetters, keys: Mapping[bytes, _KeyLetters]) -> Iterator[_Part]:
    for key, found in keys.items():
        if named is _NamedLetters.FEW and found.met > NAMED_MAX:
            target = RequestTarget(key, until=found.last)
            yield _Part(found.shard, target, found.count)
            continue
        for start in range(0, len(found.chosen), TARGETS_MAX):
            some = tuple(found.chosen[start : start + TARGETS_MAX])
            yield _Part(found.shard, RequestTarget(key, some), len(some))
        yield _Part(found.shard, None, left=found.met - len(found.chosen))


def _not_first(name: str, key: bytes, letter: PendingLetter) -> InvalidValue:
    text = key.decode("utf-8", "backslashreplace")
    return InvalidValue(
        "position",
        letter.origin,
        "the first dead letter of its key; any with break_order=True, or --break-order",
        f"redeliver the key in order: tailrace dlq {name} redeliver --key {shlex.quote(text)}",
        f"{letter.origin} is behind other dead letters of key {text!r}",
    )


def _sum(parts: Iterator[_Part], unkeyed: Mapping[LetterPlace, int]) -> SelectedLetters:
    targets: dict[int, list[RequestTarget]] = {}
    names = letters = skipped = left = 0
    keys: set[bytes] = set()
    alone = (_Part(shard, RequestTarget(None, (place,)), 1) for place, shard in unkeyed.items())
    for part in (*parts, *alone):
        skipped += part.skipped
        left += part.left
        if part.target is None:
            continue
        if names + part.names > SELECTED_MAX:
            left += part.letters
            continue
        names += part.names
        letters += part.letters
        if part.target.key is not None:
            keys.add(part.target.key)
        targets.setdefault(part.shard, []).append(part.target)
    return SelectedLetters(targets, letters, len(keys), skipped, left)
