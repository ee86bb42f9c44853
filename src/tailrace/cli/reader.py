"""`tailrace reader`: what pipelines can read."""

from __future__ import annotations

from tailrace.cli.plugin_verbs import plugin_noun

reader_command = plugin_noun("reader")
