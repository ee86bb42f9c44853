"""Verbs, nouns and the root: options that all commands share, examples, errors as one line each."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

import click

from tailrace.cli.session import ExitStatus, Output, Session
from tailrace.errors import ConfigError, Error, InvalidName, InvalidValue

_USAGE_ERRORS = (ConfigError, InvalidName, InvalidValue)


def _set_hub(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Session).hub_path = value


def _set_output(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Session).output = Output(value)


def _set_debug(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Session).debug = True


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--hub"],
            metavar="PATH",
            expose_value=False,
            callback=_set_hub,
            help="The hub's directory.  [TAILRACE_HUB; default: tailrace-data]",
        ),
        click.Option(
            ["-o", "--output"],
            type=click.Choice([form.value for form in Output]),
            expose_value=False,
            callback=_set_output,
            help="How to print.  [default: table]",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            callback=_set_debug,
            help="Show the traceback of an error.  [TAILRACE_DEBUG]",
        ),
    ]


class Verb(click.Command):
    """A command that does something. An error of its is one line on stderr and an exit status."""

    def __init__(self, *args: Any, examples: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples.strip().splitlines()
        self.params.extend(_shared_options())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they stand."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")

    def invoke(self, ctx: click.Context) -> Any:
        """Do it, and turn what goes wrong into a line and a status."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read the output has had enough, which is no error of ours.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(ExitStatus.DONE)
        except (KeyboardInterrupt, click.Abort):
            click.echo("stopped", err=True)
            ctx.exit(ExitStatus.STOPPED)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            asked = os.environ.get("TAILRACE_DEBUG", "0") not in ("", "0")
            debug = ctx.ensure_object(Session).debug or asked
            report(error, debug=debug)
            ctx.exit(ExitStatus.USAGE if isinstance(error, _USAGE_ERRORS) else ExitStatus.ERROR)
        return result


def report(error: Exception, *, debug: bool) -> None:
    """Print an error to stderr: its name and message, after its traceback if that is wanted."""
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        return
    name = click.style(type(error).__name__, fg="red", bold=True)
    hint = "" if isinstance(error, Error) else " · for the traceback: --debug"
    click.echo(f"{name}: {error}{hint}", err=True)


def verb(
    name: str, *, examples: str, short_help: str | None = None
) -> Callable[[Callable[..., Any]], Verb]:
    """Make a function a verb. Its docstring is its help."""
    return click.command(name, cls=Verb, examples=examples, short_help=short_help)


class Noun(click.Group):
    """A group of verbs, shown in the order they were given."""

    def __init__(self, name: str, verbs: Iterable[click.Command], **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        for each in verbs:
            self.add_command(each)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in their order."""
        return list(self.commands)


class Root(click.Group):
    """The whole command line. A command's module is imported when the command is asked for."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules
        self.params.extend(_shared_options())

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, the ones for daily use first."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command `NAME` is the attribute `NAME_command` of its module."""
        if cmd_name not in self._modules:
            return None
        module = import_module(self._modules[cmd_name])
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command
