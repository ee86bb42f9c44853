"""`tailrace writer`: what pipelines can write to."""

from __future__ import annotations

from tailrace.cli.plugin_verbs import plugin_noun

writer_command = plugin_noun("writer")
