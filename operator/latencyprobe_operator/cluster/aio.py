"""Keeps the synchronous Kubernetes client out of the process.

To be imported before kopf, which loads that client's package if it is installed (20 MB) for two classes that we never
use. What is left in its place still has `kubernetes.aio`, which connecting from outside a cluster needs.
"""

import importlib.util
import sys
import types

if "kubernetes" not in sys.modules and (spec := importlib.util.find_spec("kubernetes")) is not None:
    package = types.ModuleType("kubernetes")
    package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations or ())
    sys.modules["kubernetes"] = package
    sys.modules["kubernetes.client"] = None  # type: ignore[assignment]  # how Python marks a module as not importable
