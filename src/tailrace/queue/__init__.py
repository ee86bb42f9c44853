"""Queues: a topic with one subscription, and effects that happen exactly once."""
