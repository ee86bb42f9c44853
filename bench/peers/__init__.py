"""The alternatives, each used from Python as its documentation shows."""
