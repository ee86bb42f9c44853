"""How a shard spares its endpoint."""
