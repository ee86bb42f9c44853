"""An app as users declare it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, Unpack

from tailrace.app.attended import AppObserver, run_until_signal
from tailrace.app.declaration import (
    DeadLetterPolicy,
    DeclaredSubscription,
    DeclaredTopic,
    FilterLike,
    declared_subscription,
    declared_topic,
)
from tailrace.app.preparation import create_topic, open_all
from tailrace.app.queue_declaration import DeclaredQueue, GuaranteeName, declared_queue
from tailrace.app.running_app import RunningApp
from tailrace.app.worker_options import worker_options
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.load_control import LoadOptions
from tailrace.delivery.retry import DEFAULT_RETRY, Retry
from tailrace.duration import parse_duration
from tailrace.errors import InvalidValue
from tailrace.group.store.start import StartLike
from tailrace.hub.handler import label_of
from tailrace.hub.hub import Hub
from tailrace.hub.opening import open as open_hub
from tailrace.subscription.worker.defaults import CONCURRENCY, DRAIN_TIMEOUT, TIMEOUT
from tailrace.subscription.worker.effects import Effects
from tailrace.subscription.worker.worker import Worker
from tailrace.suggestion import did_you_mean

F = TypeVar("F", bound=Callable[[Delivery[Any]], object])
Q = TypeVar("Q", bound=Callable[[Any], object])
"""A handler of a queue: a function of a delivery, or of a list of them."""


class App:
    """Subscriptions and queues with their handlers, and topics, declared in one place and run
    together.

    Declaring opens nothing. ``tailrace run module:app`` runs an app, in any number of processes.
    `hub` is the directory of its hub; without one it is the hub of the command line, of the
    environment or of the nearest `tailrace.toml`.
    """

    def __init__(self, hub: str | os.PathLike[str] | None = None) -> None:
        if hub is not None and not (isinstance(hub, str | os.PathLike) and os.fspath(hub)):
            raise InvalidValue("hub", hub, "a directory")
        self.hub = None if hub is None else os.fspath(hub)
        self._topics: dict[str, DeclaredTopic] = {}
        self._subscriptions: dict[str, DeclaredSubscription] = {}

    def __repr__(self) -> str:
        return f"<App {', '.join(self._subscriptions) or 'without handlers'}>"

    @property
    def topics(self) -> tuple[DeclaredTopic, ...]:
        """The declared topics, in the order of their declaration."""
        return tuple(self._topics.values())

    @property
    def subscriptions(self) -> tuple[DeclaredSubscription, ...]:
        """The declared subscriptions, in the order of their declaration. Not those of queues."""
        declared = self._subscriptions.values()
        return tuple(each for each in declared if not isinstance(each, DeclaredQueue))

    @property
    def queues(self) -> tuple[DeclaredQueue, ...]:
        """The declared queues, in the order of their declaration."""
        declared = self._subscriptions.values()
        return tuple(each for each in declared if isinstance(each, DeclaredQueue))

    @property
    def creates_hub(self) -> bool:
        """True if the app declares a topic or a queue, so that a hub that does not exist is
        created."""
        return bool(self._topics or self.queues)

    def topic(
        self, name: str, type: Any = None, *, partitions: int = 4, order_by: str | None = None
    ) -> None:
        """Declare a topic, which is created when the app starts and there is none of that name.

        `type` is the type of its values; without one they may be of any type. `order_by` is the
        header or field that is the key of its messages. An existing topic has to agree, see
        `Hub.create_topic` with `exist_ok`. `InvalidValue` if the app declares the topic twice.
        """
        declared = declared_topic(name, type, partitions, order_by)
        if name in self._topics:
            raise InvalidValue(
                "topic", name, "one declaration for each topic", problem=f"two topics {name!r}"
            )
        self._topics[name] = declared

    def subscription(
        self,
        name: str,
        *,
        topic: str,
        retry: Retry = DEFAULT_RETRY,
        concurrency: int = CONCURRENCY,
        timeout: timedelta | str = TIMEOUT,
        filter: FilterLike = None,
        on_dead_letter: DeadLetterPolicy = "block",
        shards: int | None = None,
        start: StartLike = "earliest",
        **load: Unpack[LoadOptions],
    ) -> Callable[[F], F]:
        """Declare a subscription of a topic; the decorated function is its handler.

        The handler is a function, a coroutine function or an object that can be called, of one
        argument, a `Delivery`. The annotation ``Delivery[Order]`` of that argument is the type of
        its `value`; without one, values have the type they were pushed with. The function itself is
        returned, so that a test can call it.

        The subscription is created when the app starts and there is none of that name; it then
        delivers the messages from `start` on. `retry`, `filter` and the load control of an existing
        one become those given here. `topic`, `shards` and `on_dead_letter` cannot change;
        ``shards=None`` accepts any number. `filter` is an expression over key and headers, or a
        function of a `Message`.
        Each process handles up to `concurrency` messages at a time, all processes together up to
        `concurrency_total`, and each call may take `timeout`.

        `InvalidName` or `InvalidValue` if a value or the handler is not valid, or if the app
        declares the subscription twice. The error names the handler.
        """

        def declare(function: F) -> F:
            declared = declared_subscription(
                name,
                function,
                topic=topic,
                retry=retry,
                concurrency=concurrency,
                timeout=timeout,
                filter=filter,
                on_dead_letter=on_dead_letter,
                shards=shards,
                start=start,
                load=load,
                # A type may be defined in the function that declares the app, as tests do.
                names=sys._getframe(1).f_locals,
            )
            self._add(declared)
            return function

        return declare

    def queue(
        self,
        name: str,
        *,
        guarantee: GuaranteeName = "at-least-once",
        shards: int | None = None,
        retry: Retry = DEFAULT_RETRY,
        concurrency: int = CONCURRENCY,
        batch: bool = False,
        batch_size: int | None = None,
        effects: Effects | None = None,
        timeout: timedelta | str = TIMEOUT,
        filter: FilterLike = None,
        on_dead_letter: DeadLetterPolicy = "block",
        **load: Unpack[LoadOptions],
    ) -> Callable[[Q], Q]:
        """Declare a queue; the decorated function is its handler.

        The queue is created when the app starts and there is none of that name, with this many
        `shards`, by default 12, and with the type in the annotation ``Delivery[Job]`` of the
        handler. `retry` and `filter` of an existing one become those given here. `shards` and
        `on_dead_letter` cannot change; ``shards=None`` accepts any number. A topic of the name
        becomes a queue if the app declares it, too.

        `guarantee` is ``"at-least-once"``, ``"exactly-once"``, so that what the handler pushes by
        ``delivery.tx`` is stored together with the acknowledgement, or ``"at-most-once"``. With
        `effects`, a `SqlEffects`, the handler writes to a database by ``delivery.connection``,
        exactly once. With `batch` the handler takes a ``list[Delivery[Job]]`` of at most
        `batch_size` messages, in order. See `subscription` for the other options.

        `InvalidName` or `InvalidValue` if a value or the handler is not valid, or if the app
        declares the name twice. The error names the handler.
        """
        if callable(name):  # `@app.queue` without its arguments would declare nothing
            raise InvalidValue("name", label_of(name), '@app.queue("NAME") above the handler')

        def declare(function: Q) -> Q:
            declared = declared_queue(
                name,
                function,
                guarantee=guarantee,
                shards=shards,
                retry=retry,
                concurrency=concurrency,
                batch=batch,
                batch_size=batch_size,
                effects=effects,
                timeout=timeout,
                filter=filter,
                on_dead_letter=on_dead_letter,
                load=load,
                names=sys._getframe(1).f_locals,
            )
            self._add(declared)
            return function

        return declare

    def start(
        self,
        hub: Hub,
        *,
        only: Iterable[str] | None = None,
        drain_timeout: timedelta | str = DRAIN_TIMEOUT,
    ) -> RunningApp:
        """Start a worker for each subscription and queue, or for those named in `only`; return at
        once.

        First creates the topics, subscriptions and queues that do not exist, and changes those that
        were declared otherwise before. The workers of all processes share the messages.

        Raises `InvalidValue` if no handler is declared or `only` names another, `UnknownTopic`
        for a topic that does not exist and is not declared, `TopicExists` or `TopicTypeMismatch`
        for one that does not agree, and `SubscriptionExists` for a change that cannot be made.
        """
        chosen = self.chosen(only)
        drain = parse_duration(drain_timeout, "drain_timeout")
        for topic in self.topics:
            create_topic(hub, topic)
        opened = open_all(hub, chosen, self.topics)
        workers: dict[str, Worker] = {}
        try:
            for declared, subscription in opened:
                options = worker_options(declared)
                workers[declared.name] = subscription.start(
                    declared.handler, type=declared.type, drain_timeout=drain, **options
                )
        except BaseException:
            for worker in workers.values():
                worker.close()
            raise
        return RunningApp(workers, {each.name for each in self.queues})

    def run(
        self,
        hub: Hub | None = None,
        *,
        only: Iterable[str] | None = None,
        drain_timeout: timedelta | str = DRAIN_TIMEOUT,
    ) -> bool:
        """Run the app in this process until Ctrl-C or SIGTERM.

        Without `hub`, opens the app's own hub, or else that of the environment or the nearest
        `tailrace.toml`; it is created only if the app declares a topic or a queue.

        The first signal drains: no handler is called any more, and the calls in flight have
        `drain_timeout` to end. False if one did not, or its outcome could not be stored: its
        message will be redelivered. The second
        signal ends the process at once, with exit status 3. In a thread that is not the main thread
        signals are not handled; use `start` there.

        Raises what `start` raises, and the error of a worker that ended, after the calls of the
        others.
        """
        if hub is None:
            with open_hub(self.hub, create=self.creates_hub) as own:
                return self.run(own, only=only, drain_timeout=drain_timeout)
        start = partial(self.start, hub, only=only, drain_timeout=drain_timeout)
        return run_until_signal(start, AppObserver())

    def chosen(self, only: Iterable[str] | None = None) -> tuple[DeclaredSubscription, ...]:
        """Return the subscriptions and queues of these names, or all; `InvalidValue` if there are
        none."""
        if not self._subscriptions:
            raise InvalidValue(
                "app", self, "",
                "declare one: @app.queue(NAME) or @app.subscription(NAME, topic=TOPIC)",
                problem="the app declares no queue and no subscription",
            )  # fmt: skip
        if only is None:
            return tuple(self._subscriptions.values())
        names = [only] if isinstance(only, str) else list(only)
        for name in names:
            if name not in self._subscriptions:
                known = ", ".join(self._subscriptions)
                near = did_you_mean(name, self._subscriptions)
                problem = f"the app declares no queue or subscription {name!r}"
                raise InvalidValue("only", name, known, near, problem=problem)
        if not names:
            raise InvalidValue("only", names, f"one or more of {', '.join(self._subscriptions)}")
        return tuple(each for each in self._subscriptions.values() if each.name in names)

    def _add(self, declared: DeclaredSubscription) -> None:
        before = self._subscriptions.get(declared.name)
        if before is not None:
            kind = "queue" if isinstance(declared, DeclaredQueue) else "subscription"
            handlers = f"{before.label} and {declared.label}"
            raise InvalidValue(
                kind,
                declared.name,
                f"one handler for each {kind}",
                problem=f"two handlers of {kind} {declared.name!r}: {handlers}",
            )
        self._subscriptions[declared.name] = declared
