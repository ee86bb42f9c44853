"""Subscriptions: ordered delivery of a topic's messages, with a retry queue and dead letters."""
