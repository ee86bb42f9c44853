"""The command line: `tailrace NOUN VERB`.

Exit statuses: 0 done, 1 error, 2 usage or configuration, 3 stopped with work left, 4 `status` found
problems. Commands call `tailrace.operations` and show the result. Modules here import only cheap
modules at the top, so that `--help` is fast.
"""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command given by the arguments of this process, and exit."""
    from tailrace.cli.context import CommandContext
    from tailrace.cli.root import root
    from tailrace.cli.terminal.logs import log_to_stderr

    context = CommandContext()
    log_to_stderr(context.text)
    # SIGTERM ends a command as Ctrl-C does: messages that were read are stored first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    root.main(prog_name="tailrace", obj=context)
