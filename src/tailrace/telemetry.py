"""Every metric: its name, kind, labels and meaning, and what helps if it shows trouble.

The names follow the conventions of Prometheus: a counter ends in ``_total``, and the unit stands
last. No label is a key, a position or a partition, so the number of series is bounded by the
numbers of subscriptions, groups, topics and writers that a process works for.
"""

from __future__ import annotations

from typing import Final

from tailrace.reporting.metric import Metric, counter, gauge, histogram, hub_gauge

SERIES_MAX: Final = 1000
"""The number of series of one metric. Further ones are summed up as one with the label `other`."""

CALL_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds of the call of a handler."""

COMMIT_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Seconds of a commit or a push."""

# The endpoint itself, and the processes of `tailrace run --processes`.

MERGED_SERIES: Final = gauge(
    "tailrace_merged_series",
    "",
    "Series beyond the first 1,000 of a metric, which are summed up with the label other.",
    "Serve fewer topics, groups or subscriptions from one process.",
)
READING_AGE: Final = gauge(
    "tailrace_hub_reading_age_seconds",
    "",
    "Time since the metrics of the hub were read. They are read at most every 5 seconds.",
    "The hub answers slowly or not at all: tailrace status.",
)
READING_FAILURES: Final = counter(
    "tailrace_hub_reading_failures_total",
    "",
    "Failed attempts to read the metrics of the hub. Metrics of the hub that could not be read are "
    "missing.",
    "The log of the process has the error. Then: tailrace status.",
)
PROCESS_UP: Final = gauge(
    "tailrace_process_up",
    "process",
    "1 if the process of the supervisor has answered within 2 seconds, else 0; its other metrics "
    "are missing then.",
    "The log of the supervisor says why the process ended or does not start.",
)
PROCESS_STARTS: Final = counter(
    "tailrace_process_starts_total",
    "process",
    "Starts of the process by its supervisor.",
    "Processes that end again and again: the log of the supervisor has the exit status.",
)

# The hub.

DATABASE_BYTES: Final = hub_gauge("tailrace_hub_database_bytes", "", "Size of hub.db.")
WAL_BYTES: Final = hub_gauge(
    "tailrace_hub_wal_bytes",
    "",
    "Size of the write-ahead log of hub.db.",
    "Above 100 MB a reader keeps it from being reset: end stuck readers.",
)
DISK_FREE_BYTES: Final = hub_gauge(
    "tailrace_hub_disk_free_bytes",
    "",
    "Free space of the disk of the hub.",
    "Free disk space, or: tailrace topic delete TOPIC.",
)
DISK_USED_RATIO: Final = hub_gauge(
    "tailrace_hub_disk_used_ratio",
    "",
    "Used part of the disk of the hub, from 0 to 1.",
    "Free disk space, or: tailrace topic delete TOPIC.",
)

# Workers of subscriptions and queues. The label is the name of the subscription or queue.

WORKER_MESSAGES: Final = counter(
    "tailrace_worker_messages_total",
    "subscription outcome",
    "Messages whose call ended: succeeded; failed, by an error or the timeout; rejected by the "
    "handler; or filtered, without a call.",
    "Failed or rejected ones: tailrace dlq NAME list --by error, and the log of the worker.",
)
WORKER_IN_FLIGHT: Final = gauge(
    "tailrace_worker_in_flight_messages", "subscription", "Messages in calls that are under way."
)
WORKER_CONCURRENCY: Final = gauge(
    "tailrace_worker_concurrency",
    "subscription",
    "Maximum number of messages in calls at a time.",
    "All of them in use while messages wait: raise concurrency, or start more processes.",
)
WORKER_CALL_SECONDS: Final = histogram(
    "tailrace_worker_call_seconds",
    "subscription",
    CALL_BUCKETS,
    "Duration of the calls of the handler. A call may have several messages.",
    "Slow calls: the handler, or what it calls.",
)
WORKER_LATE_CALLS: Final = gauge(
    "tailrace_worker_late_calls",
    "subscription",
    "Calls that were given up after the timeout and still run.",
    "Give the clients of the handler timeouts, then restart the process.",
)
WORKER_SHARDS: Final = gauge(
    "tailrace_worker_shards", "subscription", "Shards that the process owns."
)
WORKER_SHARDS_GRANTED: Final = counter(
    "tailrace_worker_shards_granted_total",
    "subscription",
    "Shards that were granted to the process.",
    "Many without joins: processes stall or die. tailrace subscription show NAME.",
)
WORKER_SHARDS_LOST: Final = counter(
    "tailrace_worker_shards_lost_total",
    "subscription",
    "Shards that the process gave up, because another one owns them or the outcome of a commit was "
    "not known. What was in flight is redelivered.",
    "Stalled processes: more CPU, or a longer hub.lease.",
)
WORKER_DEAD_LETTERS: Final = counter(
    "tailrace_worker_dead_letters_total",
    "subscription",
    "Messages that became dead letters after their last attempt, or because they were rejected.",
    "tailrace dlq NAME list --by error.",
)
WORKER_COMMIT_SECONDS: Final = histogram(
    "tailrace_worker_commit_seconds",
    "subscription",
    COMMIT_BUCKETS,
    "Duration of the commits that store the outcomes of calls.",
    "Slow commits: the disk, or many processes that write to the hub.",
)
WORKER_COMMIT_FAILURES: Final = counter(
    "tailrace_worker_commit_failures_total",
    "subscription",
    "Commits that stored nothing, and are tried again.",
    "The hub does not take writes: tailrace status.",
)

# Subscriptions, as they are stored. Only those that the process has workers of.

SUBSCRIPTION_BACKLOG: Final = hub_gauge(
    "tailrace_subscription_backlog_messages",
    "subscription queue",
    "Unacknowledged messages: mq in the topic, rq in the retry queue, dlq dead letters.",
    "mq: more processes or concurrency. rq and dlq: tailrace dlq NAME list --by error.",
)
SUBSCRIPTION_OLDEST: Final = hub_gauge(
    "tailrace_subscription_oldest_seconds",
    "subscription",
    "Age of the oldest unacknowledged message; 0 without one. Dead letters that block no key do "
    "not count.",
    "tailrace explain NAME.",
)
SUBSCRIPTION_PAUSED: Final = hub_gauge(
    "tailrace_subscription_paused",
    "subscription",
    "1 while the subscription is paused, by an operator or by its dead-letter breaker.",
    "tailrace subscription resume NAME.",
)
SUBSCRIPTION_THROTTLED: Final = hub_gauge(
    "tailrace_subscription_throttled",
    "subscription",
    "1 if the error throttle has held messages back within the last 10 seconds.",
    "Many calls fail: tailrace explain NAME.",
)
SUBSCRIPTION_SHARDS: Final = hub_gauge(
    "tailrace_subscription_shards", "subscription", "Shards of the subscription."
)
SUBSCRIPTION_UNOWNED: Final = hub_gauge(
    "tailrace_subscription_unowned_shards",
    "subscription",
    "Shards that no worker owns. Their messages wait.",
    "tailrace subscription show NAME.",
)

# Consumers of groups in this process.

DELIVERED: Final = counter(
    "tailrace_consumer_delivered_messages_total", "group", "Deliveries to the loops and handlers."
)
REDELIVERED: Final = counter(
    "tailrace_consumer_redelivered_messages_total",
    "group",
    "Deliveries of messages that may have been delivered before.",
    "Consumers that end without closing, or handlers that fail: tailrace group history NAME.",
)
ACKNOWLEDGED: Final = counter(
    "tailrace_consumer_acknowledged_messages_total", "group", "Acknowledged messages."
)
NACKED: Final = counter(
    "tailrace_consumer_nacked_messages_total",
    "group",
    "Failed deliveries.",
    "The log of the process has the errors of its handlers.",
)
CONSUMER_IN_FLIGHT: Final = gauge(
    "tailrace_consumer_in_flight_messages",
    "group",
    "Messages that are delivered, and neither acknowledged nor nacked.",
)
CONSUMER_HELD_BACK: Final = gauge(
    "tailrace_consumer_held_back_messages",
    "group",
    "Messages that wait behind another one of their key, or for their next attempt.",
    "tailrace explain NAME.",
)
CONSUMER_PARTITIONS: Final = gauge(
    "tailrace_consumer_partitions", "group", "Partitions that the consumers of the process own."
)
PARTITIONS_GRANTED: Final = counter(
    "tailrace_consumer_partitions_granted_total",
    "group",
    "Partitions that were granted to consumers of the process: a rebalance each.",
    "Many without joins: consumers stall or die. tailrace group history NAME.",
)
PARTITIONS_REVOKED: Final = counter(
    "tailrace_consumer_partitions_revoked_total",
    "group",
    "Partitions that the leader revoked from consumers of the process, in order.",
)
GROUP_LEADER: Final = gauge(
    "tailrace_group_leader",
    "group",
    "1 if the process leads the group. The group of the workers of a subscription is "
    "subscription:NAME.",
)

# Groups, as they are stored. Only those that the process consumes in.

GROUP_LAG: Final = hub_gauge(
    "tailrace_group_lag_messages",
    "group",
    "Unacknowledged messages of the group.",
    "More consumers, up to the number of partitions: tailrace lag NAME.",
)
GROUP_LAG_SECONDS: Final = hub_gauge(
    "tailrace_group_lag_seconds",
    "group",
    "Age of the oldest unacknowledged message of the group; 0 without one.",
    "tailrace lag NAME.",
)
GROUP_CONSUMERS: Final = hub_gauge(
    "tailrace_group_consumers", "group", "Consumers in the group, of all processes."
)
GROUP_PARTITIONS: Final = hub_gauge(
    "tailrace_group_partitions",
    "group state",
    "Partitions of the group: open, waiting for partitions that they follow, or finished.",
)
GROUP_BLOCKED_KEYS: Final = hub_gauge(
    "tailrace_group_blocked_keys",
    "group",
    "Failed messages that block their keys, as far as they are listed.",
    "tailrace explain NAME.",
)

# Pushes by this process.

PUSHED_MESSAGES: Final = counter(
    "tailrace_pushed_messages_total", "topic", "Messages that the process pushed."
)
PUSHED_BYTES: Final = counter(
    "tailrace_pushed_bytes_total", "topic", "Size of the messages that the process pushed."
)
PUSH_SECONDS: Final = histogram(
    "tailrace_push_seconds",
    "topic",
    COMMIT_BUCKETS,
    "Duration of the pushes, each of one message or of one batch.",
    "Slow pushes: the disk, or many processes that write to the hub. Push in batches.",
)
PUSH_FAILURES: Final = counter(
    "tailrace_push_failures_total",
    "topic",
    "Pushes, of one message or one batch, that raised an error.",
    "The error that the push raised; then tailrace status.",
)
PRODUCER_QUEUED: Final = gauge(
    "tailrace_producer_queued_messages",
    "topic",
    "Messages that pipelined producers hold and have not stored.",
    "The hub takes writes more slowly than the process pushes.",
)

# Runs of pipelines and sources in this process.

PIPELINE_RUNNING: Final = gauge(
    "tailrace_pipeline_running",
    "pipeline",
    "1 while the pipeline runs in the process, with its writers.",
    "tailrace explain PIPELINE.",
)
PIPELINE_ROWS: Final = counter(
    "tailrace_pipeline_rows_read_total", "pipeline", "Rows that the reader of the run has read."
)
PIPELINE_BYTES: Final = counter(
    "tailrace_pipeline_read_bytes_total",
    "pipeline",
    "Size of the rows that the reader of the run has read, in the commit log.",
)
PIPELINE_UNREADABLE: Final = counter(
    "tailrace_pipeline_unreadable_rows_total",
    "pipeline",
    "Rows that could not be read, and became dead letters.",
    "tailrace dlq PIPELINE list --by error.",
)
PIPELINE_BLOCKED: Final = gauge(
    "tailrace_pipeline_reader_blocked",
    "pipeline",
    "1 while the reader waits for a slow writer.",
    "tailrace explain PIPELINE names the writer.",
)
WRITER_STATE: Final = gauge(
    "tailrace_writer_state",
    "writer state",
    "1 for the present state of the writer, 0 for the others.",
    "failed or waiting: tailrace explain PIPELINE/WRITER.",
)
WRITER_LAG: Final = gauge(
    "tailrace_writer_lag_records",
    "writer",
    "Records of the commit log that the writer has not delivered.",
    "tailrace explain PIPELINE/WRITER.",
)
WRITER_ROWS: Final = counter(
    "tailrace_writer_rows_total", "writer", "Rows that the writer has delivered, in all its runs."
)
WRITER_PARKED: Final = counter(
    "tailrace_writer_parked_records_total",
    "writer",
    "Records that the writer has moved to the dead letters, in all its runs.",
    "tailrace dlq PIPELINE/WRITER list --by error.",
)
WRITER_WAITING: Final = gauge(
    "tailrace_writer_waiting_seconds",
    "writer",
    "Time since the writer waits for its sink; 0 if it does not wait.",
    "The sink cannot be reached: tailrace explain PIPELINE/WRITER.",
)
SOURCE_ROWS: Final = counter(
    "tailrace_source_rows_total", "source", "Rows that the task of the source has read."
)
SOURCE_BYTES: Final = counter(
    "tailrace_source_read_bytes_total",
    "source",
    "Size of the rows that the task of the source has read, in the commit log.",
)
SOURCE_UNREADABLE: Final = counter(
    "tailrace_source_unreadable_rows_total",
    "source",
    "Rows that could not be read, and became dead letters.",
    "tailrace dlq SOURCE list --by error.",
)
SOURCE_UNITS: Final = gauge(
    "tailrace_source_units", "source", "Parts of the source that the task reads."
)

METRICS: Final = {each.name: each for each in list(globals().values()) if isinstance(each, Metric)}
"""All metrics, by name."""
