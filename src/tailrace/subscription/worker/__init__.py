"""The workers of a subscription: they own shards and call handlers."""
