"""Offset resets of a subscription: back or forward in its topic, forward in RQ and DLQ."""
