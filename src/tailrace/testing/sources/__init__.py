"""The simulator of sources: tasks that share a scripted source, in virtual time."""
