"""The names of topics and headers that Tailrace reserves for itself, for pipelines and for
subscriptions."""

from __future__ import annotations

from typing import Final

INTERNAL_PREFIX: Final = "tailrace."
"""The prefix of internal topics, and of the headers that only Tailrace writes. No topic filter of a
group matches such topics, and errors do not suggest them for other names."""

RETRY_QUEUE_PREFIX: Final = f"{INTERNAL_PREFIX}retry-queue."
DEAD_LETTER_QUEUE_PREFIX: Final = f"{INTERNAL_PREFIX}dead-letter-queue."
"""The prefixes of the two queues of a subscription, before its name."""

REPLAY_PREFIX: Final = f"{INTERNAL_PREFIX}replay."
"""The prefix of the subscriptions that replay a queue, before the queue, a dot and the replay."""

WORKER_GROUP_PREFIX: Final = "subscription:"
"""The prefix of the groups that the workers of subscriptions form, before the subscription."""

SOURCE_GROUP_PREFIX: Final = "source:"
"""The prefix of the groups that the tasks of sources form, before the source."""

SYNC_SUFFIX: Final = "_connector_sync"
"""The end of the name of a sync topic, after the name of its source."""

HEARTBEAT_SUFFIX: Final = "_heartbeat"
"""The end of the name of a heartbeat topic, after the name of its source."""

COMMIT_LOG_SUFFIX: Final = ".commits"
"""The end of the name of a commit log, after the name of its pipeline."""

DEAD_LETTERS_SUFFIX: Final = ".dead-letters"
"""The end of the name of the topic with the dead letters of a pipeline."""


def pipeline_of(topic: str) -> str | None:
    """Return the pipeline that creates the topic of this name; None if it is not reserved for
    one."""
    if topic.startswith(INTERNAL_PREFIX):
        return None
    for suffix in (COMMIT_LOG_SUFFIX, DEAD_LETTERS_SUFFIX):
        if topic.endswith(suffix):
            return topic.removesuffix(suffix)
    return None
