"""Where a hub lives: the contract of a backend, and the backends that keep it."""
