"""Draw terminal output, read from standard input, as docs/demo.svg.

`script -qec "stty cols 110; scripts/demo" /dev/null | .venv/bin/python scripts/picture.py`
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

console = Console(record=True, width=112, file=io.StringIO())
for line in sys.stdin.read().strip().splitlines():
    console.print(Text.from_ansi(line))
svg = console.export_svg(title="make demo")
# Rich names web fonts; the picture needs nothing from elsewhere.
Path("docs/demo.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))
