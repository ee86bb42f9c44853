"""Filters: expressions over the key and the headers of messages. Pure."""
