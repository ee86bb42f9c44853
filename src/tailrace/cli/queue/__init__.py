"""The commands about queues: `tailrace queue`."""
