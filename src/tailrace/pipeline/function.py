"""What a function is: it changes, drops or multiplies documents between a reader and a writer."""

from __future__ import annotations

import msgspec

from tailrace.pipeline.namespace import ALL, NamespaceFilter
from tailrace.pipeline.rows import Rows


class Function(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a function. Immutable and picklable; it is carried to the executors.

    The chain applies the function's own filter, `namespace`, to the namespaces as the functions
    before have left them: `apply` gets only rows that it is for.
    """

    namespace: NamespaceFilter = ALL

    def apply(self, rows: Rows) -> Rows:
        """The rows that go on, in order, with the offsets they came with.

        A record that is not among them is dropped, which acknowledges it for the writer. Raises
        `RowError` for the first record that it cannot handle.
        """
        raise NotImplementedError

    def apply_columns(self, rows: Rows) -> Rows | None:
        """The same as `apply`, by `Rows.columns`; None where these do not tell enough."""
        return None
