"""HTTP endpoints: a message as a request, and what the answer means for the message."""
