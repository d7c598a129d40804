"""A contract as its seal holds it, whatever it is about."""

from inferproof.core.contract import KernelContract
from inferproof.core.errors import UsageError
from inferproof.core.service import ServiceContract
from inferproof.core.values import Digest, Value


class SealedContract(Value):
    """A contract with the digests of all its files; `digest` names them together."""

    contract: KernelContract | ServiceContract
    digest: Digest
    folder: str
    files: dict[str, Digest]

    @property
    def place(self) -> str:
        """Where the contract lies in a campaign folder."""
        return f"contracts/{self.contract.kind}s/{self.contract.name}"

    @property
    def kernel(self) -> KernelContract:
        """The contract of a kernel.

        Raises:
            UsageError: it is about a service.
        """
        if isinstance(self.contract, KernelContract):
            return self.contract
        raise UsageError(f"contract {self.contract.name} is about a service, not a kernel")

    @property
    def service(self) -> ServiceContract:
        """The contract of a service.

        Raises:
            UsageError: it is about a kernel.
        """
        if isinstance(self.contract, ServiceContract):
            return self.contract
        raise UsageError(f"contract {self.contract.name} is about a kernel, not a service")
