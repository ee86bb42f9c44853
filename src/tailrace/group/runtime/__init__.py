"""The runtime of the protocol in a process: threads, sockets, store access, liveness."""
