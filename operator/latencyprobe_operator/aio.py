"""`kubernetes.aio` without the synchronous client that its parent package imports.

Every module of ours that needs the client, and the one that imports kopf, imports this first. `kubernetes/__init__.py`
loads the whole synchronous client, and kopf asks for two of its classes if it is there: 8 MB that nobody uses.
"""

import importlib.util
import sys
import types

if "kubernetes" not in sys.modules:
    spec = importlib.util.find_spec("kubernetes")
    assert spec is not None
    package = types.ModuleType("kubernetes")
    package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations or ())
    sys.modules["kubernetes"] = package
    sys.modules["kubernetes.client"] = None  # type: ignore[assignment]  # how Python marks a module as not importable
