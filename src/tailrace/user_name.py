"""The user of this process, for records of who changed something."""

from __future__ import annotations

import getpass
import os
import socket


def user_name() -> str:
    """Return the name of the user, or its number if it has none, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def user_at_host() -> str:
    """Return ``user@host``."""
    return f"{user_name()}@{socket.gethostname()}"
