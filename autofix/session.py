"""SessionSettings: how the model is to be opened, and in which runtime; stored with it as session.json.

`open_session` gives an object with get_inputs(), get_outputs() and run(names or None, feed): an onnxruntime.InferenceSession, the same behind
fixed buffers (bound_session.py), or OpenVINO's (openvino_session.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

LEVELS = ("DISABLE_ALL", "BASIC", "EXTENDED", "LAYOUT", "ALL")
"""ONNX Runtime's graph optimisation levels, weakest first."""


@dataclass(frozen=True)
class SessionSettings:
    """Settings of an onnxruntime.InferenceSession; the defaults are ONNX Runtime's own, spinning apart.

    io_binding: inputs and outputs go through buffers that stay, which saves a call's overhead. runtime: "onnxruntime", or "openvino", for which
    only the number of threads counts.
    """

    level: str = "ALL"
    disabled_optimizers: tuple[str, ...] = ()
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    free_dimensions: tuple[tuple[str, int], ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    io_binding: bool = False
    runtime: str = "onnxruntime"

    def to_json(self) -> dict[str, Any]:
        """Plain data; younger fields only where they are set."""
        data = {k: [list(x) if isinstance(x, tuple) else x for x in v] if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        usual = {"io_binding": False, "runtime": "onnxruntime"}
        return {k: v for k, v in data.items() if k not in usual or v != usual[k]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SessionSettings:
        """The inverse of `to_json`."""
        kept: dict[str, Any] = {}
        for f in fields(cls):
            if f.name in data:
                v = data[f.name]
                kept[f.name] = tuple(tuple(x) if isinstance(x, list) else x for x in v) if isinstance(v, list) else v
        return cls(**kept)


def session_options(settings: SessionSettings = SessionSettings(), threads: int = 1) -> Any:
    """The onnxruntime.SessionOptions of these settings: spinning off, so that sessions side by side do not slow one another."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.graph_optimization_level = getattr(
        ort.GraphOptimizationLevel, "ORT_ENABLE_" + settings.level if settings.level != "DISABLE_ALL" else "ORT_DISABLE_ALL"
    )
    for name, size in settings.free_dimensions:
        options.add_free_dimension_override_by_name(name, size)
    for key, value in settings.entries:
        options.add_session_config_entry(key, value)
    return options


def open_session(path: str, settings: SessionSettings = SessionSettings(), threads: int = 1) -> Any:
    """The session for the file at `path`; raises what the runtime raises, ImportError where it is not installed."""
    if settings.runtime == "openvino":
        from autofix.openvino_session import OpenVinoSession

        return OpenVinoSession(path, threads)
    import onnxruntime as ort

    disabled = {"disabled_optimizers": list(settings.disabled_optimizers)} if settings.disabled_optimizers else {}
    session = ort.InferenceSession(path, session_options(settings, threads), providers=list(settings.providers), **disabled)
    if settings.io_binding:
        from autofix.bound_session import BoundSession

        return BoundSession(session)
    return session
