"""What the owner of a shard stores at once, and what waits for it."""
