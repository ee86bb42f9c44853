"""Dead letters: listing, redelivering and discarding them."""
