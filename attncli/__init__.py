"""attn: inspect attention on text, step by step.

The public names are imported when first used, so that the command line starts instantly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncli.analysis import metrics as metrics
    from attncli.errors import AttnError as AttnError
    from attncli.mechanism.attend import attention as attention
    from attncli.mechanism.spec import Spec as Spec
    from attncli.mechanism.trace import AttentionTrace as AttentionTrace
    from attncli.models.load import load as load

__version__ = "0.1.0"
__all__ = ["AttentionTrace", "AttnError", "Spec", "__version__", "attention", "load", "metrics"]

_HOMES = {
    "AttentionTrace": "attncli.mechanism.trace",
    "Spec": "attncli.mechanism.spec",
    "AttnError": "attncli.errors",
    "attention": "attncli.mechanism.attend",
    "load": "attncli.models.load",
}
_MODULES = {"metrics": "attncli.analysis.metrics"}


if not TYPE_CHECKING:  # a checker sees the imports above, and no name besides

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _HOMES and name not in _MODULES:
            raise AttributeError(f"module 'attncli' has no attribute {name!r}")
        if name in _MODULES:
            return import_module(_MODULES[name])
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
