"""The function that is a Spark SQL expression. Only the Spark engine can run it."""

from __future__ import annotations

from tailrace.errors import ConfigError, InvalidValue
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.pipeline.transform.rows import Rows


class Sql(Function, frozen=True):
    """``SELECT select WHERE where`` over documents whose fields are the columns of `schema`.

    `schema` is Spark DDL, such as ``id BIGINT, total DOUBLE``. Documents for which `where` is not
    true are dropped. The result of `select` is the new document.
    """

    schema: str
    select: str = "*"
    where: str | None = None

    def apply(self, rows: Rows) -> Rows:
        """Raise `ConfigError`: only Spark can run the function."""
        raise ConfigError("the function sql needs Spark", 'set engine = "spark" for the writer')


def sql(
    select: str = "*",
    where: str | None = None,
    *,
    schema: str,
    namespace: str | None = None,
) -> Sql:
    """Return a function that transforms documents by Spark SQL, only on ``engine = "spark"``::

    fn.sql("id, total * 1.19 AS gross", "total > 0", schema="id BIGINT, total DOUBLE")
    """
    for what, text in (("select", select), ("where", where), ("schema", schema)):
        if not (text is None and what == "where") and not (isinstance(text, str) and text.strip()):
            raise InvalidValue(what, text, "Spark SQL as text")
    return Sql(schema, select, where, namespace=NamespaceFilter.parse(namespace))
