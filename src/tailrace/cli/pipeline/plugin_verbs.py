"""`tailrace reader` and `tailrace writer`: the installed plug-ins and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.command import Noun, Verb, verb
from tailrace.cli.context import CommandContext
from tailrace.terminal.tables import facts, table

if TYPE_CHECKING:
    from tailrace.operations.pipeline.plugins import PluginDetail, PluginSummary


def plugin_noun(noun: str) -> Noun:
    """Return the noun `reader` or `writer` with its verbs."""
    return Noun(noun, [_list(noun), _show(noun)], help=f"Show the {noun}s for pipelines.")


def _list(noun: str) -> Verb:
    @verb("list", examples=f"tailrace {noun} list\ntailrace {noun} list -o json")
    @click.pass_obj
    def list_(context: CommandContext) -> None:
        from tailrace.operations.pipeline.plugins import list_plugins

        context.show(list_plugins(noun), _plugins_table)

    list_.help = f"List the installed {noun}s, including those of other packages."
    return list_


def _show(noun: str) -> Verb:
    @verb("show", examples=f"tailrace {noun} show file\ntailrace {noun} show file -o json")
    @click.argument("name")
    @click.pass_obj
    def show(context: CommandContext, name: str) -> None:
        from tailrace.operations.pipeline.plugins import show_plugin

        context.show(show_plugin(noun, name), _plugin_text)

    show.help = f"Show the options of a {noun}, and a sample."
    return show


def _plugins_table(plugins: list[PluginSummary]) -> str:
    rows = (
        (p.name, p.package, p.summary if p.loads else click.style(p.summary, fg="red"))
        for p in plugins
    )
    return table(("name", "package", "description"), rows)


def _plugin_text(plugin: PluginDetail) -> str:
    parts = [plugin.description, _options_text(plugin), click.style("sample", bold=True)]
    return "\n\n".join(part for part in parts if part) + f"\n{plugin.sample}"


def _options_text(plugin: PluginDetail) -> str:
    blocks = []
    for option in plugin.options:
        default = "required" if option.required else option.default or "none"
        pairs = [("  meaning", option.meaning), ("  type", option.type), ("  default", default)]
        if option.example is not None:
            pairs.append(("  example", option.example))
        lines = facts([pair for pair in pairs if pair[1]])
        blocks.append(f"{click.style(option.name, bold=True)}\n{lines}")
    return "\n".join(blocks)
