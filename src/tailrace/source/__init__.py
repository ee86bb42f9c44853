"""Reading a system's data and changes into a commit log."""
