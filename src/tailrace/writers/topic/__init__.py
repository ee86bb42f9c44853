"""The `topic` writer: appends records to a topic, exactly once and in order.

`writer` has the options, `session` one attempt, `keys` the choice of keys, and `applied` the
offsets that the topic has, stored in the topic's hub.
"""
