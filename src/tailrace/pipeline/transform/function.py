"""The contract of a function: it changes, drops or multiplies documents before a writer."""

from __future__ import annotations

import msgspec

from tailrace.pipeline.transform.namespace import ALL, NamespaceFilter
from tailrace.pipeline.transform.rows import Rows


class Function(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a function. Immutable and picklable, and sent to the executors.

    The chain applies the function's filter, `namespace`, to the namespaces as the functions before
    have left them: `apply` gets only the rows that match.
    """

    namespace: NamespaceFilter = ALL

    def apply(self, rows: Rows) -> Rows:
        """Return the rows for the next function, in order, with their offsets.

        A record that is not among them is dropped: it is acknowledged for the writer. Raises
        `RowError` for the first record that the function cannot transform.
        """
        raise NotImplementedError

    def apply_columns(self, rows: Rows) -> Rows | None:
        """Do the same as `apply` on `Rows.columns`; None if the columns are not sufficient."""
        return None
