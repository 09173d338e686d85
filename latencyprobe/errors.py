"""The exception tree. The class tells the reaction; the message says what is wrong, where, and what to do.

LatencyProbeError
├── SpecError            the LatencyProbe is wrong: `path` names the field       (operator: PermanentError; CLI: exit 1)
├── Unsupported          this kernel or these capabilities cannot measure        (agent stays up, tries again, says why)
├── AbiMismatch          record layout differs from the BPF object               (agent stops)
├── DirectoryError       the operator's directory is away or refuses             (agent keeps its last plan)
├── OutputError          standard output, or a file of results, is full          (CLI: exit 1)
├── ReportError          a report has not what was asked for                     (CLI: exit 1)
├── StoreError           the SLI store is full, damaged or from a newer version
└── ClusterError         the Kubernetes API is away or refuses                   (operator: TemporaryError)
"""


class LatencyProbeError(Exception):
    """Base of all: callers at the entry layer print `latencyprobe: <message>`."""


class SpecError(LatencyProbeError):
    """A LatencyProbe is refused. `path` is the field's path as `kubectl` writes it (`spec.targets[0].ports[1]`);
    `source` is the file it stands in, if any. `reason`: as its status has it."""

    reason = "InvalidSpec"

    def __init__(self, path: str, problem: str, source: str = "") -> None:
        super().__init__(": ".join(part for part in (source, path, problem) if part))
        self.path = path
        self.problem = problem


class Unsupported(LatencyProbeError):  # noqa: N818 - a state of the host, as its reason in the status
    """Measuring is impossible here. `reason` is a stable CamelCase word such as KernelUnsupported."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class AbiMismatch(LatencyProbeError):  # noqa: N818 - the field's term
    """`records.py` and the loaded object disagree: they were built from different versions of events.h."""


class DirectoryError(LatencyProbeError):
    """The directory is unreachable or refused. `retry_after_s`: for how long it wants to be left alone, 0 where it does
    not say."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutputError(LatencyProbeError):
    """Results cannot be written to where they were wanted."""


class StoreError(LatencyProbeError):
    """The SLI store cannot be read or written. `reason`: a stable word for what is wrong with all of it, StoreFull,
    StoreDamaged or StoreFailed; empty where it is one call or one series alone."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class ReportError(LatencyProbeError):
    """A report has not what was asked for."""


class ClusterError(LatencyProbeError):
    """The Kubernetes API is away or refused."""


def innermost(error: BaseException) -> str:
    """Return the innermost cause in a few words: urllib3 wraps it in object addresses."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
