"""Effects in a database of the user, stored together with the messages that caused them."""
