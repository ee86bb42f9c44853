"""What something waits for and why, and the commands that help."""

from __future__ import annotations

from tailrace.errors import InvalidValue
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.operations.explain_partition import explain_partition
from tailrace.operations.explain_writer import explain_writer
from tailrace.operations.explanation import Explanation


def explain(hub: Hub, subject: str) -> Explanation:
    """Explain a writer, ``lake/crm``, or a partition, ``orders/1.7``; `InvalidValue` for else."""
    if "/" not in subject or "@" in subject:
        forms = "PIPELINE/WRITER or a partition, for example lake/crm or orders/1.7"
        raise InvalidValue("what to explain", subject, forms)
    try:
        partition = Partition.parse(subject)
    except InvalidValue:
        return explain_writer(hub, subject)
    return explain_partition(hub, partition)
