"""The decisions of a shard. Pure: no threads, sockets, clocks or backend."""
