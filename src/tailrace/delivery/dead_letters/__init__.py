"""Dead letters: records that a consumer could not process, kept with the reason.

The dead letters of a consumer are the records of a topic. A letter is the failed record with the
time of the failure and with headers that name the consumer, the error and the original position. A
letter waits until an operator redelivers or discards it. Then it is acknowledged in the ledger of
the consumer ``TOPIC/resolved``; the letters of a subscription are acknowledged in its own.

Pipelines, groups and subscriptions use this package. Nothing in it depends on them: callers pass
the topic, the name of the consumer and the records to append.
"""
