"""How commands use a terminal: prompts, signals, logs, pipes."""
