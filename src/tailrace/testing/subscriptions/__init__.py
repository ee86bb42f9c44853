"""The simulator of subscriptions: workers, shards and their handlers in virtual time."""
