"""The errors of names: nothing has the name, something else has it, or it is not valid."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from tailrace.amount import format_amount
from tailrace.errors.base import Error
from tailrace.reserved_names import INTERNAL_PREFIX, WORKER_GROUP_PREFIX, pipeline_of
from tailrace.suggestion import did_you_mean


def _unknown(kind: str, name: str, where: str, known: list[str], remedy: str) -> tuple[str, ...]:
    """Return the sentences of an error about a name that nothing has: a similar name of those that
    are `known`, if there is one, and what to do."""
    near = did_you_mean(name, known)
    here = f"({format_amount(len(known), kind)} here)"
    return f"no {kind} {name!r} {where}", f"{near} {here}" if near else "", remedy


class UnknownTopic(Error, LookupError):
    """No topic of that name in this hub, or no such storage topic or partition of it.

    `known` lists the topics of the hub; internal topics only if the name is that of one.
    `subscription` is the one whose topic was deleted, if the error is about a subscription; `kind`
    is ``"queue"`` if it is that of a queue. `directory` is given for another hub than that of the
    caller: the command of the remedy names it.
    """

    def __init__(
        self,
        topic: str,
        hub: str,
        known: Iterable[str] = (),
        subscription: str | None = None,
        kind: str = "subscription",
        directory: str | None = None,
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        internal = topic.startswith(INTERNAL_PREFIX)
        self.known = sorted(
            name for name in known if internal or not name.startswith(INTERNAL_PREFIX)
        )
        if subscription is not None:
            super().__init__(
                f"topic {topic!r} of {kind} {subscription!r} was deleted from {hub}",
                f"delete the {kind}: tailrace {kind} delete {subscription}",
            )
            return
        remedy = self._remedy(topic)
        if directory is not None:
            remedy = remedy.replace("tailrace ", f"tailrace --hub {shlex.quote(directory)} ")
        super().__init__(*_unknown("topic", topic, f"in {hub}", self.known, remedy))

    @staticmethod
    def _remedy(topic: str) -> str:
        name, slash, _ = topic.partition("/")
        if slash:
            return f"list its partitions: tailrace topic show {name}"
        if (pipeline := pipeline_of(topic)) is not None:
            return f"pipeline {pipeline!r} creates it when it runs: tailrace pipeline run FILE"
        return f"create it: tailrace topic create {topic} --partitions 4"


class TopicExists(Error, ValueError):
    """A topic of that name exists. `differences` lists how its definition differs from the
    requested one. `remedy` replaces the last sentence of the message."""

    def __init__(self, topic: str, differences: Iterable[str] = (), remedy: str = "") -> None:
        self.topic = topic
        self.differences = list(differences)
        super().__init__(
            f"topic {topic!r} exists" + (" with another definition" if self.differences else ""),
            "; ".join(self.differences),
            remedy
            or (
                "open it with hub.topic(), or choose another name"
                if self.differences
                else "open it with hub.topic(), or create it with exist_ok=True, or --exist-ok"
            ),
        )


class UnknownSource(Error, LookupError):
    """No source of that name in this hub."""

    def __init__(self, source: str, hub: str, known: Iterable[str] = ()) -> None:
        self.source = source
        self.known = sorted(known)
        remedy = "it is created when it first runs: tailrace source run FILE"
        super().__init__(*_unknown("source", source, f"in {hub}", self.known, remedy))


class UnknownGroup(Error, LookupError):
    """No group of that name in this hub. `subscriptions` lists those of the hub."""

    def __init__(
        self,
        group: str,
        hub: str,
        known: Iterable[str] = (),
        subscriptions: Iterable[str] = (),
    ) -> None:
        self.group = group
        self.known = sorted(known)
        subscription = group.removeprefix(WORKER_GROUP_PREFIX)
        if subscription != group or group in subscriptions:
            super().__init__(
                f"no group {group!r} in {hub}",
                "the workers of a subscription are shown with it: "
                f"tailrace subscription show {subscription}",
            )
            return
        remedy = f"create it by consuming: tailrace tail TOPIC --group {group}"
        super().__init__(*_unknown("group", group, f"in {hub}", self.known, remedy))


class GroupExists(Error, ValueError):
    """A group of that name exists and consumes other topics: those that match `filter`."""

    def __init__(self, group: str, filter: str, asked: str) -> None:
        self.group = group
        self.filter = filter
        self.asked = asked
        super().__init__(
            f"group {group!r} consumes {filter!r}, not {asked!r}",
            f"choose another name, or delete it: tailrace group delete {group}",
        )


class UnknownSubscription(Error, LookupError):
    """No subscription of that name in this hub."""

    def __init__(self, subscription: str, hub: str, known: Iterable[str] = ()) -> None:
        self.subscription = subscription
        self.hub = hub
        self.known = sorted(known)
        remedy = f"create it: tailrace subscription create {subscription} --topic TOPIC"
        super().__init__(*_unknown("subscription", subscription, f"in {hub}", self.known, remedy))


class UnknownQueue(UnknownSubscription):
    """No queue of that name in this hub. It is an `UnknownSubscription` too, because a queue is
    consumed by a subscription of its name."""

    def __init__(self, queue: str, hub: str, known: Iterable[str] = ()) -> None:
        self.queue = self.subscription = queue
        self.hub = hub
        self.known = sorted(known)
        remedy = f"create it: tailrace queue create {queue}, or hub.queue({queue!r}) without strict"
        Error.__init__(self, *_unknown("queue", queue, f"in {hub}", self.known, remedy))


class UnknownReplay(Error, LookupError):
    """No replay of that id of this queue."""

    def __init__(self, queue: str, replay: str, hub: str, known: Iterable[str] = ()) -> None:
        self.queue = queue
        self.replay = replay
        self.known = sorted(known)
        where = f"of queue {queue!r} in {hub}"
        super().__init__(
            *_unknown("replay", replay, where, self.known, "list them: queue.replays()")
        )


class SubscriptionExists(Error, ValueError):
    """A subscription of that name exists. `differences` lists how its definition differs from the
    requested one. `remedy` replaces the last sentence of the message."""

    def __init__(
        self, subscription: str, differences: Iterable[str] = (), remedy: str = ""
    ) -> None:
        self.subscription = subscription
        self.differences = list(differences)
        super().__init__(
            f"subscription {subscription!r} exists"
            + (" with another definition" if self.differences else ""),
            "; ".join(self.differences),
            remedy
            or (
                "change its retry policy or filter with subscription.update(), or with tailrace"
                f" subscription update {subscription}, or choose another name"
                if self.differences
                else "open it with hub.subscription(), or create it with exist_ok=True, or"
                " --exist-ok"
            ),
        )


class QueueExists(SubscriptionExists):
    """A queue of that name exists. `differences` lists how its definition differs from the
    requested one. `remedy` replaces the last sentence of the message."""

    def __init__(self, queue: str, differences: Iterable[str], remedy: str = "") -> None:
        self.queue = self.subscription = queue
        self.differences = list(differences)
        Error.__init__(
            self,
            f"queue {queue!r} exists with another definition",
            "; ".join(self.differences),
            remedy
            or "open it without these options, or choose another name; to change its retry policy:"
            f" tailrace subscription update {queue}",
        )


class InvalidName(Error, ValueError):
    """A name that is not safe as a directory, a part of a URL and a metric label."""

    def __init__(self, kind: str, name: object, valid: str = "") -> None:
        self.kind = kind
        self.name = name
        shown = repr(name)
        valid = valid or "1 to 200 characters of a-z A-Z 0-9 . _ - that do not start with . or -"
        super().__init__(
            f"{shown if len(shown) <= 60 else shown[:57] + '...'} is not a valid {kind} name",
            f"valid: {valid}",
        )
