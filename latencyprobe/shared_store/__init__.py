"""The shared store: counts of objectives read from a server with the HTTP API of Prometheus, where agents' metrics are.

`settings.py` says which server, `client.py` asks it, `questions.py` is the PromQL, `answers.py` what comes back;
`counts.py` answers what evaluation and reports ask of any store, `beside.py` adds what metrics do not carry.
"""

from latencyprobe.shared_store.client import Client
from latencyprobe.shared_store.counts import PrometheusCounts
from latencyprobe.shared_store.settings import Settings


def shared_counts(url: str) -> PrometheusCounts:
    """Return the counts of a server, asked as the environment says. Raises LatencyProbeError."""
    return PrometheusCounts(Client(Settings.of(url)))
