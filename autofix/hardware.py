"""What this machine's processor and its ONNX Runtime can do, as far as a strategy must know it to propose well."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path


@functools.cache
def cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """The processor's feature flags as Linux names them ("avx2", "avx512_vnni"); empty where the system does not tell."""
    try:
        text = Path(path).read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def has_int8_products(path: str = "/proc/cpuinfo") -> bool:
    """Whether 8-bit products are added up in 32 bits (VNNI, or Arm's dot products): elsewhere AVX2 adds pairs in 16 bits, which saturates
    unless weights keep to 7 bits."""
    return bool(cpu_flags(path) & {"avx512_vnni", "avx_vnni", "asimddp"})


@functools.cache
def onnxruntime_providers() -> tuple[str, ...]:
    """The execution providers that the installed ONNX Runtime offers, best first."""
    try:
        import onnxruntime
    except ImportError:
        return ()
    return tuple(onnxruntime.get_available_providers())


@functools.cache
def has_openvino() -> bool:
    """Whether OpenVINO is installed."""
    return importlib.util.find_spec("openvino") is not None
