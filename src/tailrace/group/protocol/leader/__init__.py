"""The leader's side of the protocol: who is granted which unit."""
