"""Replays: the messages of a range of time once more, as a job that survives its processes."""
