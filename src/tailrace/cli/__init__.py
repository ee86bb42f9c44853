"""The command line: `tailrace NOUN VERB`.

Exit statuses: 0 done, 1 error, 2 usage or configuration, 3 stopped with work left, 4 `status` found
something not well. Everything it does is in `tailrace.operations`; here it is asked for and shown.
Modules here import at their top only what is cheap, so that `--help` is there at once.
"""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command that the arguments of this process ask for, and exit."""
    from tailrace.cli.logs import log_to_stderr
    from tailrace.cli.root import root

    log_to_stderr()
    # A SIGTERM ends a command as Ctrl-C does: what was taken is stored first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    root.main(prog_name="tailrace")
