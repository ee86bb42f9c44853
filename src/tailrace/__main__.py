"""`python -m tailrace` is `tailrace`."""

from tailrace.cli import main

main()
