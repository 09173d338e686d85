"""Write charts/latencyprobe/files/dashboards/: the Grafana dashboards that the chart installs.

With `-` they go to standard output, as one JSON object by file name.
"""

import json
import sys
from pathlib import Path

from dashboards import agents, objective, overview, stages
from grafana_foundation_sdk.cog.encoder import JSONEncoder

FOLDER = Path(__file__).parents[1] / "charts/latencyprobe/files/dashboards"


def texts() -> dict[str, str]:
    """Return the text of each file, by its name."""
    pages = {"overview": overview, "objective": objective, "stages": stages, "agents": agents}
    encoder, written = JSONEncoder(sort_keys=True, indent=2), {}
    for name, module in pages.items():
        page = module.build().build()
        for variable in page.templating.list_val:
            variable.auto = variable.auto_min = variable.auto_count = None  # of intervals alone, says Grafana's schema
        written[f"{name}.json"] = encoder.encode(page) + "\n"
    return written


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        json.dump(texts(), sys.stdout)
    else:
        FOLDER.mkdir(exist_ok=True)
        for name, text in texts().items():
            (FOLDER / name).write_text(text)
