"""The commands about topics: `tailrace topic`, `push` and `tail`."""
