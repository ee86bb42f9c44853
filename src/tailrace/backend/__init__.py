"""The storage of a hub: the contract of a backend, and the backends that implement it."""
