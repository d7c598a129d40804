"""How a job went through a cluster's queue."""

from typing import Annotated

from pydantic import AfterValidator, Field

from inferproof.core.harmless import harmless
from inferproof.core.values import Value

Told = Annotated[str, Field(max_length=1000), AfterValidator(harmless)]


class QueueStart(Value):
    """One time that a job came into the queue: its number there, its node, how it ended if it did.

    `is_fault`: the machine ended it, which is nobody's blame, and the job was started again.
    """

    number: Told
    node: Told
    ended: Told
    is_fault: bool
