"""The tables in the user's database, and the statements that both databases understand."""

from __future__ import annotations

from typing import Final

OWNERS: Final = "tailrace_owners"
EFFECTS: Final = "tailrace_effects"


def table_definitions(bytes_type: str) -> tuple[str, str]:
    """Return the statements that create the tables, with the database's type for bytes."""
    return (
        f"CREATE TABLE IF NOT EXISTS {OWNERS} (consumer text NOT NULL, generation bigint NOT NULL,"
        " unit text NOT NULL, epoch bigint NOT NULL, attempt bigint NOT NULL,"
        " PRIMARY KEY (consumer, unit))",
        f"CREATE TABLE IF NOT EXISTS {EFFECTS} (consumer text NOT NULL, unit text NOT NULL,"
        f" stream text NOT NULL, block bigint NOT NULL, done {bytes_type} NOT NULL,"
        " PRIMARY KEY (consumer, unit, stream, block))",
    )


def take_owner(mark: str) -> str:
    """Return the statement that stores an owner, unless the unit has a higher epoch or the consumer
    a later generation.

    `mark` formats the names of parameters: consumer, generation, unit and epoch.
    """
    consumer, generation, unit, epoch = _marks(mark, "consumer", "generation", "unit", "epoch")
    return (
        f"INSERT INTO {OWNERS} AS held (consumer, generation, unit, epoch, attempt)"
        f" SELECT {consumer}, {generation}, {unit}, {epoch}, 0 WHERE NOT EXISTS (SELECT 1"
        f" FROM {OWNERS} WHERE consumer = {consumer} AND generation > {generation})"
        " ON CONFLICT (consumer, unit) DO UPDATE SET epoch = excluded.epoch,"
        " attempt = held.attempt + 1 WHERE held.epoch <= excluded.epoch RETURNING attempt"
    )


def raise_earlier(mark: str) -> str:
    """Return the statement that fences the earlier generations, after `take_owner` had an effect.

    The parameters are those of `take_owner`.
    """
    consumer, generation, unit, epoch = _marks(mark, "consumer", "generation", "unit", "epoch")
    return (
        f"UPDATE {OWNERS} SET epoch = {epoch} WHERE consumer = {consumer}"
        f" AND generation < {generation} AND epoch < {epoch} AND EXISTS (SELECT 1"
        f" FROM {OWNERS} WHERE consumer = {consumer} AND unit = {unit} AND epoch = {epoch})"
    )


def highest_epoch(mark: str) -> str:
    """Return the query for the highest epoch of a unit and of later generations."""
    consumer, generation, unit = _marks(mark, "consumer", "generation", "unit")
    return (
        f"SELECT max(epoch) FROM {OWNERS} WHERE consumer = {consumer}"
        f" AND (unit = {unit} OR generation > {generation})"
    )


def known_rows(mark: str) -> str:
    """Return the query for the rows of a unit and of all earlier generations."""
    consumer, generation, unit = _marks(mark, "consumer", "generation", "unit")
    return (
        f"SELECT unit, stream, block, done FROM {EFFECTS} WHERE consumer = {consumer}"
        f" AND unit IN (SELECT unit FROM {OWNERS} WHERE consumer = {consumer}"
        f" AND (unit = {unit} OR generation < {generation}))"
    )


def _marks(mark: str, *names: str) -> list[str]:
    return [mark.format(name) for name in names]
