"""The function that is a Spark SQL expression. The Spark engine runs it; nothing else can."""

from __future__ import annotations

from tailrace.errors import ConfigError, InvalidValue
from tailrace.pipeline.function import Function
from tailrace.pipeline.namespace import NamespaceFilter
from tailrace.pipeline.rows import Rows


class Sql(Function, frozen=True):
    """``SELECT select WHERE where`` over documents whose fields are the columns of `schema`.

    `schema` is Spark's DDL, such as ``id BIGINT, total DOUBLE``. A document for which `where` is
    not true is dropped. Of the others what `select` gives is the new document.
    """

    schema: str
    select: str = "*"
    where: str | None = None

    def apply(self, rows: Rows) -> Rows:
        """Refused: Spark does it, on columns."""
        raise ConfigError("the function sql needs Spark", 'give the writer engine = "spark"')


def sql(
    select: str = "*",
    where: str | None = None,
    *,
    schema: str,
    namespace: str | None = None,
) -> Sql:
    """Transform documents by Spark SQL, on ``engine = "spark"`` alone::

    fn.sql("id, total * 1.19 AS gross", "total > 0", schema="id BIGINT, total DOUBLE")
    """
    for what, text in (("select", select), ("where", where), ("schema", schema)):
        if not (text is None and what == "where") and not (isinstance(text, str) and text.strip()):
            raise InvalidValue(what, text, "Spark SQL as text")
    return Sql(schema, select, where, namespace=NamespaceFilter.parse(namespace))
