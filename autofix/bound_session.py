"""An onnxruntime session whose inputs and outputs go through buffers that stay: for calls so short that handing values over counts."""

from __future__ import annotations

from typing import Any

NUMPY_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}


class BoundSession:
    """Has the methods of an InferenceSession that callers here use. Buffers are kept for the last shape of the inputs; `run` returns copies, so
    that a result stays what it was when the next call is made."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.inputs = [(v.name, NUMPY_TYPES.get(v.type, "")) for v in session.get_inputs()]
        self.outputs = [v.name for v in session.get_outputs()]
        sizes = {d for v in session.get_inputs() for d in v.shape if isinstance(d, str)}
        # an output whose sizes follow from the inputs' has one shape for each of theirs
        shapes_follow = all(isinstance(d, int) or d in sizes for v in session.get_outputs() for d in v.shape)
        plain = all(kind for _, kind in self.inputs) and all(v.type in NUMPY_TYPES for v in session.get_outputs())
        self.bindable = shapes_follow and plain and bool(self.inputs)
        self.plan: list[tuple[str, Any, Any, Any]] = []
        self.results: list[Any] = []
        self.binding: Any = None
        self.call = session._sess.run_with_iobinding  # the public method only wraps it, which counts here

    def get_inputs(self) -> Any:
        """As InferenceSession's."""
        return self.session.get_inputs()

    def get_outputs(self) -> Any:
        """As InferenceSession's."""
        return self.session.get_outputs()

    def get_providers(self) -> Any:
        """As InferenceSession's."""
        return self.session.get_providers()

    def run(self, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
        """As InferenceSession's; the results are the caller's own."""
        if names is None and len(feed) == len(self.plan):
            for name, buffer, shape, dtype in self.plan:
                array = feed.get(name)
                if getattr(array, "shape", None) != shape or array.dtype != dtype:  # type: ignore[union-attr]
                    break
                buffer[...] = array
            else:
                self.call(self.binding, None)
                return [result.copy() for result in self.results]
        results = list(self.session.run(names, feed))  # with its own message where a value does not fit
        if self.bindable and names is None and len(feed) == len(self.inputs):
            self.bind(feed, results)
        return results

    def bind(self, feed: dict[str, Any], results: list[Any]) -> None:
        """Make buffers for inputs and outputs of these shapes."""
        import numpy as np

        arrays = [np.asarray(feed[name]) for name, _ in self.inputs]
        if any(a.dtype.name != kind for a, (_, kind) in zip(arrays, self.inputs, strict=True)):
            return
        io = self.session.io_binding()
        buffers = [np.empty(a.shape, a.dtype) for a in arrays]
        self.results = [np.empty(a.shape, a.dtype) for a in results]
        for (name, _), buffer in zip(self.inputs, buffers, strict=True):
            io.bind_input(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        for name, buffer in zip(self.outputs, self.results, strict=True):
            io.bind_output(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        self.kept, self.binding = io, io._iobinding
        self.plan = [(name, b, b.shape, b.dtype) for (name, _), b in zip(self.inputs, buffers, strict=True)]
