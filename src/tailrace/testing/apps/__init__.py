"""Runs of apps in tests: the handlers of users, a hub in memory, virtual time, one thread."""
