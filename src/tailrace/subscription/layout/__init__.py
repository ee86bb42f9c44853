"""Which shard has which partitions, and the shape of the queues. Pure."""
