"""Classes of commands: the shared options, examples in the help, errors as one line."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

import click

from tailrace.cli.commands import ALIASES
from tailrace.cli.context import CommandContext, ExitStatus, Output
from tailrace.errors import ConfigError, Error, InvalidName, InvalidValue

_USAGE_ERRORS = (ConfigError, InvalidName, InvalidValue)


def _set_hub(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(CommandContext).hub_path = value


def _set_output(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(CommandContext).output = Output(value)


def _set_read_only(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(CommandContext).read_only = True


def _set_debug(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(CommandContext).debug = True


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--hub"],
            metavar="PATH",
            expose_value=False,
            callback=_set_hub,
            help="Directory of the hub.  [TAILRACE_HUB; default: tailrace-data]",
        ),
        click.Option(
            ["--read-only"],
            is_flag=True,
            expose_value=False,
            callback=_set_read_only,
            help="Open the hub read-only: write nothing, and need no right to write.",
        ),
        click.Option(
            ["-o", "--output"],
            type=click.Choice([form.value for form in Output]),
            expose_value=False,
            callback=_set_output,
            help="Output format.  [default: table]",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            callback=_set_debug,
            help="Print the traceback of an error.  [TAILRACE_DEBUG]",
        ),
    ]


class Verb(click.Command):
    """A command that runs. An error is printed as one line on stderr, with an exit status."""

    def __init__(self, *args: Any, examples: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples.strip().splitlines()
        self.params.extend(_shared_options())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples without wrapping them."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Print an error as one line and exit with its status."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader closed the pipe, as `head` does. This is not an error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(ExitStatus.DONE)
        except (KeyboardInterrupt, click.Abort):
            click.echo("stopped", err=True)
            ctx.exit(ExitStatus.STOPPED)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            asked = os.environ.get("TAILRACE_DEBUG", "0") not in ("", "0")
            context = ctx.ensure_object(CommandContext)
            report(context, error, debug=context.debug or asked)
            ctx.exit(ExitStatus.USAGE if isinstance(error, _USAGE_ERRORS) else ExitStatus.ERROR)
        return result


def report(context: CommandContext, error: Exception, *, debug: bool) -> None:
    """Print an error on stderr: its traceback if `debug`, else its name and message."""
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        return
    name = click.style(type(error).__name__, fg="red", bold=True)
    hint = "" if isinstance(error, Error) else " · add --debug for the traceback"
    click.echo(f"{name}: {context.text(str(error))}{hint}", err=True)


def verb(
    name: str, *, examples: str, context_settings: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., Any]], Verb]:
    """Make a command of a function. Its docstring is the help text."""
    return click.command(
        name, cls=Verb, examples=examples, context_settings=dict(context_settings or {})
    )


class Noun(click.Group):
    """A group of verbs, listed in the given order."""

    def __init__(self, name: str, verbs: Iterable[click.Command], **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        for each in verbs:
            self.add_command(each)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the given order."""
        return list(self.commands)


class Root(click.Group):
    """The root of the command line. The module of a command is imported when it is used."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules
        self.params.extend(_shared_options())

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands, the most used first."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the attribute `NAME_command` of the module of a command, or of its alias."""
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in self._modules:
            return None
        module = import_module(self._modules[name])
        command: click.Command = getattr(module, f"{name}_command")
        return command
