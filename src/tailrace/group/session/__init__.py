"""One consumer's session: the units it owns, and which one delivers next."""
