"""The commands about sources: `tailrace source`."""
