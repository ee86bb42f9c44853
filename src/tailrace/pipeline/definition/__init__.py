"""How a pipeline is defined, in Python or TOML, and checked."""
