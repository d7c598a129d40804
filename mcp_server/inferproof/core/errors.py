"""The error tree. Each error says what happened, with which value, and what to do next.

InferproofError
├── UsageError          the caller asked for something that cannot be (exit 2)
│   ├── FileFormatError a campaign, contract or manifest does not parse
│   └── NotFound        no candidate, contract, job or target of that name
├── SealBroken          sealed bytes changed, or nothing is sealed yet
├── LedgerError         the ledger cannot be read, locked or trusted
├── ApprovalRefused     an approval or key is missing, wrong, used or expired
└── InfrastructureError the machine failed, not the candidate (retryable, exit 5)
    └── Unreachable     nobody answers there now; what runs there goes on

A failed check is a Verdict, never an exception.
"""


class InferproofError(Exception):
    """Root of all errors shown to users and agents.

    Args:
        what: what happened, with the offending value in it.
        hint: what to do next, as an instruction or a command.
    """

    error_code: str = "error"
    retryable: bool = False
    exit_code: int = 2

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}. {self.hint}" if self.hint else self.what


class UsageError(InferproofError):
    """The request itself is wrong."""

    error_code = "usage"


class FileFormatError(UsageError):
    """A file that a person or agent wrote does not have the documented form."""

    error_code = "file_format"

    def __init__(self, what: str, *, path: str, line: int | None = None, hint: str = "") -> None:
        self.path = path
        self.line = line
        where = f"{path}:{line}" if line is not None else path
        super().__init__(f"{where}: {what}", hint=hint)


class NotFound(UsageError):
    """Nothing of that name exists; the hint lists what does."""

    error_code = "not_found"


class SealBroken(InferproofError):
    """A sealed file changed after the seal, or the campaign has no valid seal."""

    error_code = "seal_broken"


class LedgerError(InferproofError):
    """The ledger is damaged, locked for too long, or not ours."""

    error_code = "ledger"


class ApprovalRefused(InferproofError):
    """An approval cannot be given or used."""

    error_code = "approval_refused"


class InfrastructureError(InferproofError):
    """The bench failed; the candidate is not to blame and the call may be repeated."""

    error_code = "infrastructure"
    retryable = True
    exit_code = 5


class Unreachable(InfrastructureError):
    """Nobody answers, or the line to who answered is broken; the jobs there go on."""

    error_code = "unreachable"
