"""The group protocol. Pure: events in, actions out, no I/O."""
