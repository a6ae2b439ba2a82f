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
        self.shapes: list[Any] = []
        self.binding: Any = None

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
        if not self.bindable or names is not None:
            return list(self.session.run(names, feed))
        try:
            arrays = [feed[name] for name, _ in self.inputs]
            shapes = [a.shape for a in arrays]
            typed = all(a.dtype.name == kind for a, (_, kind) in zip(arrays, self.inputs))  # noqa: B905
        except (KeyError, AttributeError):
            return list(self.session.run(None, feed))  # its own message
        if not typed or len(feed) != len(arrays):
            return list(self.session.run(None, feed))
        if self.binding is None or shapes != self.shapes:
            self.bind(arrays, shapes)
        for buffer, array in zip(self.buffers, arrays):  # noqa: B905
            buffer[...] = array
        self.session._sess.run_with_iobinding(self.binding._iobinding, None)
        return [result.copy() for result in self.results]

    def bind(self, arrays: list[Any], shapes: list[Any]) -> None:
        """Make buffers for inputs of these shapes; one plain run tells the outputs' shapes."""
        import numpy as np

        self.binding = None
        first = self.session.run(None, {name: a for (name, _), a in zip(self.inputs, arrays, strict=True)})
        binding = self.session.io_binding()
        self.buffers = [np.empty(a.shape, a.dtype) for a in arrays]
        self.results = [np.empty(a.shape, a.dtype) for a in first]
        for (name, _), buffer in zip(self.inputs, self.buffers, strict=True):
            binding.bind_input(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        for name, buffer in zip(self.outputs, self.results, strict=True):
            binding.bind_output(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        self.binding, self.shapes = binding, shapes
