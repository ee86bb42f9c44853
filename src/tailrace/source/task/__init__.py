"""The tasks that share a source: who reads which unit."""
