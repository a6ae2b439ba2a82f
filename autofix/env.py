"""The versions that an outcome depends on."""

from __future__ import annotations

import functools
import platform
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def environment() -> dict[str, str]:
    """Versions of torch, onnx, onnxruntime, onnxscript, Python and the platform, without importing any of them."""
    found = {"python": platform.python_version(), "platform": f"{platform.system().lower()}-{platform.machine()}"}
    for name in ("torch", "onnx", "onnxruntime", "onnxscript", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
