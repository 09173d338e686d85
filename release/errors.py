"""Why a release is not made."""


class ReleaseError(Exception):
    """The message says what is wrong and what to do."""
