"""The consumer's side of the protocol: one agent per session, with its borrowers."""
