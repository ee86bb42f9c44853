"""The objects that users work with: a hub, its topics and transactions."""
