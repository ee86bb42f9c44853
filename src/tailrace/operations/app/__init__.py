"""Running an app: loading it from a module, and supervising the processes that run it."""
