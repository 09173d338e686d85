"""What figures are as text in a report, as units.py writes them.

Who may write the reports of one namespace may have written anything: what is read is held against these, so that nobody
who computes with it has to ask.
"""

from typing import Annotated

import msgspec

TraceId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{0,32}$")]  # stands in commands that a person may copy
Duration = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}(\.[0-9]{1,9})?(ns|us|ms|s)$")]
MaybeDuration = Annotated[str, msgspec.Meta(pattern=r"^([0-9]{1,20}(\.[0-9]{1,9})?(ns|us|ms|s))?$")]  # empty: none
Span = Annotated[str, msgspec.Meta(pattern=r"^([0-9]{1,9}[dhms]){1,2}$")]
Window = Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]{0,8}d$")]
Number = Annotated[str, msgspec.Meta(pattern=r"^-?[0-9]{1,30}(\.[0-9]{1,9})?$")]
MaybeNumber = Annotated[str, msgspec.Meta(pattern=r"^(-?[0-9]{1,30}(\.[0-9]{1,9})?)?$")]  # empty: none
