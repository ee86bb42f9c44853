"""Ordered delivery of one unit's messages. Pure: no threads, sockets, clocks or backend."""
