"""Text for people: tables and progress, for the command line and for programs."""
