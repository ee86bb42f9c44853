"""What a hub stores for subscriptions, and the transactions of shards."""
