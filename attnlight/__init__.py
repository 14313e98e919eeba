"""Train attention models and test whether their attention explains their predictions."""

from importlib import import_module as _import_module

__version__ = "0.1.0"
# Imported at use: `import attnlight` takes no time.
_MODULES = {
    "Explanation": "report.explanation",
    "Results": "api.run",
    "check": "api.check",
    "explain": "api.explain",
    "load": "api.run",
    "run": "api.run",
}
__all__ = ["Explanation", "Results", "check", "explain", "load", "run"]


def __getattr__(name: str) -> object:
    """A name of the Python interface."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
