"""The chain of a writer: the namespace filter and the functions."""
