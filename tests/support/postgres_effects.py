"""A PostgreSQL that effects are written to, and a look at its sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from tests.support.effects_contract import EffectsFixtures, PaidDatabase


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return [] if cursor.description is None else cursor.fetchall()


def paid_database(url: str) -> PaidDatabase:
    query(url, "CREATE TABLE paid (id bigint PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
    return PaidDatabase(url, partial(query, url))


def hold_commits(database: PaidDatabase, then: str) -> None:
    """Let the commit of payment 1 wait while `held_commits`, and run a statement afterwards.

    The commit waits in a deferred trigger, with the lock of the owner's row.
    """
    database.query(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF NEW.id = 1 THEN"
        f" PERFORM pg_advisory_xact_lock(1); {then}; END IF; RETURN NULL; END$$"
    )
    database.query(
        "CREATE CONSTRAINT TRIGGER held AFTER INSERT ON paid DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION hold()"
    )


@contextmanager
def held_commits(database: PaidDatabase) -> Iterator[None]:
    with psycopg.connect(database.target) as blocker:
        blocker.execute("SELECT pg_advisory_xact_lock(1)")
        yield


def sessions(database: PaidDatabase, condition: str) -> int:
    """The number of other sessions in the database that meet a condition."""
    ((count,),) = database.query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        f" AND pid <> pg_backend_pid() AND {condition}"
    )
    return int(count)


class PostgresEffects(EffectsFixtures):
    """Effects of a PostgreSQL."""

    @pytest.fixture
    def database(self, postgres_url: str) -> PaidDatabase:
        return paid_database(postgres_url)
