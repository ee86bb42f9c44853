"""The dead letters of a consumer by its name: of a writer, a pipeline, a source, a group or a
subscription.

A mailbox of a writer, pipeline or group knows how its letters are redelivered. A redelivered record
is appended to the topic that it came from, for its consumer alone; other consumers skip it. The
letters of a subscription stay in its DLQ until its workers have redelivered or discarded them, see
`tailrace.operations.dead_letters.requests`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tailrace.delivery.dead_letters.letter import POSITION, DeadLetter
from tailrace.delivery.dead_letters.mailbox import Mailbox
from tailrace.delivery.dead_letters.resolve import (
    Append,
    group_redelivery_append,
    redelivery_append,
)
from tailrace.errors import InvalidValue
from tailrace.group.store import dead_letters as group_letters
from tailrace.group.store.definition import group_names
from tailrace.hub.hub import Hub
from tailrace.message import Position
from tailrace.operations.pipeline.lookup import (
    commit_log,
    dead_letter_topic,
    find_writer,
    writer_names,
)
from tailrace.operations.topic.lookup import find_topic
from tailrace.pipeline.catalog import RegisteredPipeline, find, pipelines
from tailrace.source.catalog import find_source, source_names
from tailrace.subscription.store.definition import find_definition
from tailrace.subscription.store.lifecycle import read_subscription
from tailrace.subscription.store.names import replay_of
from tailrace.subscription.store.requests.letters import open_letters
from tailrace.suggestion import did_you_mean
from tailrace.topic.internal_topics import is_queue
from tailrace.topic.view import View

GROUP: Final = "group:"
PIPELINE: Final = "pipeline:"
SOURCE: Final = "source:"
SUBSCRIPTION: Final = "subscription:"
"""Before a name that a group and another consumer share: which of the two is meant."""

LISTED_MAX: Final = 20
"""Number of known consumers that an error lists."""


class ConsumerMailbox(Protocol):
    """The dead letters of a consumer, and the topics that they are redelivered to."""

    @property
    def letters(self) -> Mailbox:
        """The letters."""

    def can_redeliver(self, letter: DeadLetter) -> bool:
        """True if a letter can be redelivered."""

    def check_redeliver(self, letter: DeadLetter) -> None:
        """Raise `InvalidValue`, with the reason, if a letter cannot be redelivered."""

    def targets(self, letters: Sequence[DeadLetter]) -> Mapping[str, View]:
        """Return the topics that letters are redelivered to, by name."""

    def append(self, letter: DeadLetter, targets: Mapping[str, View]) -> Append:
        """Return the append that redelivers a letter."""


@dataclass(frozen=True, slots=True)
class PipelineMailbox:
    """The dead letters of a writer of a pipeline, or of the whole pipeline."""

    hub: Hub
    pipeline: RegisteredPipeline
    letters: Mailbox

    def can_redeliver(self, letter: DeadLetter) -> bool:
        """True if the letter's writer exists."""
        writer = letter.writer
        return writer is not None and writer.partition("/")[2] in self.pipeline.writers

    def check_redeliver(self, letter: DeadLetter) -> None:
        """Raise `InvalidValue` if a reader could not read the record, or if its writer was
        removed."""
        if self.can_redeliver(letter):
            return
        if letter.writer is None:
            raise _unreadable(self.letters.name, letter)
        valid = f"a letter of a writer that exists; {letter.writer} was removed"
        raise _refused(self.letters.name, letter, valid, "run the pipeline with that writer again")

    def targets(self, letters: Sequence[DeadLetter]) -> Mapping[str, View]:
        """Return the commit log. Raise `InvalidValue` if it was deleted."""
        log = commit_log(self.hub, self.pipeline)
        if log is None:
            missing = self.pipeline.commit_log
            valid = f"a consumer with a commit log; the topic {missing} does not exist"
            raise InvalidValue("consumer", self.letters.name, valid)
        return {log.name: log.view}

    def append(self, letter: DeadLetter, targets: Mapping[str, View]) -> Append:
        """Return the append to the commit log."""
        return redelivery_append(targets[self.pipeline.commit_log], letter)


@dataclass(frozen=True, slots=True)
class SourceMailbox:
    """The dead letters of a source: what its reader could not read. None can be redelivered."""

    letters: Mailbox

    def can_redeliver(self, letter: DeadLetter) -> bool:
        """Return False."""
        return False

    def check_redeliver(self, letter: DeadLetter) -> None:
        """Raise `InvalidValue`."""
        raise _unreadable(self.letters.name, letter)

    def targets(self, letters: Sequence[DeadLetter]) -> Mapping[str, View]:
        """Return no topic."""
        return {}

    def append(self, letter: DeadLetter, targets: Mapping[str, View]) -> Append:
        """Raise `InvalidValue`."""
        raise _unreadable(self.letters.name, letter)


@dataclass(frozen=True, slots=True)
class GroupMailbox:
    """The dead letters of a group."""

    hub: Hub
    group: str
    letters: Mailbox

    def can_redeliver(self, letter: DeadLetter) -> bool:
        """True if the group and the topic of the record exist, and users may push to that."""
        topic = _topic_of(letter)
        exist = self.group in self.hub.groups() and topic in self.hub.topics()
        return exist and not is_queue(topic)

    def check_redeliver(self, letter: DeadLetter) -> None:
        """Raise `InvalidValue` if the group or the topic was deleted, or if the topic is a queue
        of a subscription."""
        if self.can_redeliver(letter):
            return
        if is_queue(topic := _topic_of(letter)):
            valid = f"a letter of a topic that users push to; {topic} is a subscription's own"
            raise _refused(self.letters.name, letter, valid, "handle the record by hand")
        if self.group not in self.hub.groups():
            valid = f"a letter of a group that exists; {self.group} was deleted"
            raise _refused(self.letters.name, letter, valid, "run a consumer of the group")
        valid = f"a letter of a topic that exists; {_topic_of(letter)} was deleted"
        raise _refused(self.letters.name, letter, valid, "create the topic again")

    def targets(self, letters: Sequence[DeadLetter]) -> Mapping[str, View]:
        """Return the topics that the records came from."""
        return {name: find_topic(self.hub, name).view for name in set(map(_topic_of, letters))}

    def append(self, letter: DeadLetter, targets: Mapping[str, View]) -> Append:
        """Return the append to the topic that the record came from."""
        return group_redelivery_append(targets[_topic_of(letter)], letter)


@dataclass(frozen=True, slots=True)
class SubscriptionMailbox:
    """The dead letters of a subscription."""

    subscription: str
    letters: Mailbox


def open_mailbox(hub: Hub, consumer: str) -> ConsumerMailbox | SubscriptionMailbox:
    """Return the letters of a writer, ``lake/crm``, a whole pipeline, ``lake``, a source, a
    subscription, a replay, ``tailrace.replay.jobs.nightly``, or a group.

    Raise `InvalidValue` if the name is unknown, or if it is that of a group and of a pipeline,
    source or subscription.
    """
    if "/" in consumer:
        if consumer not in writer_names(hub):
            raise _unknown(hub, consumer)
        return _pipeline_mailbox(hub, find_writer(hub, consumer).pipeline, consumer)
    name = _plain(consumer)
    kind = consumer.removesuffix(name)
    letters = _topic_of_group(hub, name)
    pipeline = find(hub.backend.store, name) if kind in ("", PIPELINE) else None
    source = find_source(hub.backend.store, name) if kind in ("", SOURCE) else None
    is_subscription = kind in ("", SUBSCRIPTION) and _is_subscription(hub, name)
    others = {PIPELINE: pipeline is not None, SOURCE: source is not None}
    others[SUBSCRIPTION] = is_subscription
    if not kind and letters is not None and any(others.values()):
        other = next(each for each, exists in others.items() if exists)
        both = f"{name!r} is a {other.removesuffix(':')} and a group"
        raise InvalidValue("consumer", consumer, f"{other}{name} or {GROUP}{name}", problem=both)
    if pipeline is not None:
        return _pipeline_mailbox(hub, pipeline, None)
    if source is not None:
        topic = source.dead_letters
        view = find_topic(hub, topic).view if topic in hub.topics() else None
        return SourceMailbox(Mailbox(view, consumer))
    if is_subscription:
        stored = read_subscription(hub.backend, name)
        return SubscriptionMailbox(name, open_letters(hub.backend, stored))
    # A group that was deleted may have letters.
    is_group = letters is not None or name in group_names(hub.backend)
    if not is_group or kind not in ("", GROUP):
        raise _unknown(hub, consumer)
    return GroupMailbox(hub, name, Mailbox(letters, consumer))


def _is_subscription(hub: Hub, name: str) -> bool:
    """True if there is a subscription of the name, also that of a replay."""
    is_replay = replay_of(name) is not None and find_definition(hub.backend, name) is not None
    return is_replay or name in hub.subscriptions()


def _plain(consumer: str) -> str:
    """Return the name of a consumer without its kind."""
    for kind in (GROUP, PIPELINE, SOURCE, SUBSCRIPTION):
        if consumer.startswith(kind):
            return consumer.removeprefix(kind)
    return consumer


def count_group_letters(hub: Hub, group: str) -> int:
    """Return the number of waiting letters of a group."""
    return sum(Mailbox(_topic_of_group(hub, group), group).count_by_writer().values())


def find_group_letter(hub: Hub, group: str, position: str) -> DeadLetter | None:
    """Return the waiting letter of the message at a position; None if there is none."""
    return Mailbox(_topic_of_group(hub, group), group).find(position)


def _pipeline_mailbox(
    hub: Hub, pipeline: RegisteredPipeline, writer: str | None
) -> PipelineMailbox:
    topic = dead_letter_topic(hub, pipeline)
    view = None if topic is None else topic.view
    return PipelineMailbox(hub, pipeline, Mailbox(view, writer or pipeline.name, writer))


def _unknown(hub: Hub, consumer: str) -> InvalidValue:
    writers = writer_names(hub)
    known = [*group_names(hub.backend), *(each.name for each in pipelines(hub.backend.store))]
    known += source_names(hub.backend.store)
    known = sorted({*known, *writers, *hub.subscriptions()})
    listed = ", ".join(known[:LISTED_MAX])
    if len(known) > LISTED_MAX:
        listed += f" and {len(known) - LISTED_MAX:,} more"
    remedy = did_you_mean(_plain(consumer), known)
    if not known:
        remedy = "no group, pipeline or source has run here, and there is no subscription"
    problem = f"no consumer {consumer!r} in {hub.backend.name}"
    return InvalidValue("consumer", consumer, listed, remedy, problem)


def _topic_of_group(hub: Hub, group: str) -> View | None:
    name = group_letters.dead_letter_topic(group)
    return find_topic(hub, name).view if name in hub.topics() else None


def _topic_of(letter: DeadLetter) -> str:
    return Position.parse(letter.headers[POSITION].decode()).topic


def _refused(mailbox: str, letter: DeadLetter, valid: str, remedy: str) -> InvalidValue:
    discarded = f"tailrace dlq {mailbox} discard {letter.position} --reason TEXT"
    return InvalidValue("position", letter.position, valid, f"{remedy}, or discard it: {discarded}")


def _unreadable(mailbox: str, letter: DeadLetter) -> InvalidValue:
    valid = "a letter of a writer: this one could not be read"
    return _refused(mailbox, letter, valid, "correct the source")
