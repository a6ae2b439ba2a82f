"""A repaired model, ready to be called: the session of an output folder, opened as its session.json says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autofix.errors import UsageError
from autofix.session import SessionSettings, open_session


class LoadedModel:
    """A verified model.onnx. `inputs` and `outputs` are its names in order, `settings` those it was verified with, `session` what runs it.

    Call it with tensors or arrays, in the file's order or by name: one output comes back as such, several as a list, as torch tensors where a torch
    tensor went in, as NumPy arrays elsewhere. `run` is ONNX Runtime's own: `run(feed)` or `run(names, feed)` gives a list of arrays.
    """

    def __init__(self, session: Any, settings: SessionSettings) -> None:
        self.session, self.settings = session, settings
        self.inputs = [str(v.name) for v in session.get_inputs()]
        self.outputs = [str(v.name) for v in session.get_outputs()]
        self.dtypes = {str(v.name): str(v.type) for v in session.get_inputs()}

    def run(self, names: Sequence[str] | Mapping[str, Any] | None, feed: Mapping[str, Any] | None = None) -> list[Any]:
        """The outputs (those of `names`, where they are given) for a feed {input name: array}."""
        if isinstance(names, Mapping):
            names, feed = None, names
        if feed is None:
            raise TypeError("run needs a feed: a mapping from input names to arrays")
        return list(self.session.run(list(names) if names is not None else None, {k: self.as_array(k, v) for k, v in feed.items()}))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See the class. Raises TypeError where an input is missing or unknown."""
        feed = {**dict(zip(self.inputs, args, strict=False)), **{self.full_name(k): v for k, v in kwargs.items()}}
        missing = [n for n in self.inputs if n not in feed]
        if len(args) > len(self.inputs) or missing or len(feed) != len(args) + len(kwargs):
            what = f"missing: {', '.join(missing)}" if missing else "too many, or one given twice"
            raise TypeError(f"the model's inputs are {', '.join(self.inputs)}; {what}")
        found = self.run(feed)
        if any(is_torch(v) for v in feed.values()):
            import torch

            found = [torch.from_numpy(v) if hasattr(v, "dtype") else v for v in found]
        return found[0] if len(found) == 1 else found

    def full_name(self, name: str) -> str:
        """The input that a keyword means; a dot, which no keyword can hold, may be written as two underscores."""
        for known in self.inputs:
            if name in (known, known.replace(".", "__")):
                return known
        raise TypeError(f"there is no input {name}; the model's inputs are {', '.join(self.inputs)}")

    def as_array(self, name: str, value: Any) -> Any:
        """A tensor as an array; Python numbers and lists in the input's own type."""
        import numpy as np

        if is_torch(value):
            return value.detach().cpu().numpy()
        if isinstance(value, (bool, int, float, list, tuple)):
            kinds = {"tensor(float)": "float32", "tensor(double)": "float64"}
            kind = self.dtypes.get(name, "")
            return np.asarray(value, dtype=kinds.get(kind, kind.removeprefix("tensor(").removesuffix(")")))
        return value

    def get_inputs(self) -> list[Any]:
        """ONNX Runtime's description of the inputs."""
        return list(self.session.get_inputs())

    def get_outputs(self) -> list[Any]:
        """ONNX Runtime's description of the outputs."""
        return list(self.session.get_outputs())

    def __getattr__(self, name: str) -> Any:
        """Whatever else the session can do."""
        if name == "session":
            raise AttributeError(name)
        return getattr(self.session, name)

    def __repr__(self) -> str:
        return f"LoadedModel(inputs={self.inputs}, outputs={self.outputs})"


def is_torch(value: Any) -> bool:
    """Whether a value is a torch tensor, without importing torch."""
    return type(value).__module__.split(".")[0] == "torch" or hasattr(value, "detach")


def load(folder: str | Path, threads: int = 1) -> LoadedModel:
    """The model.onnx of an output folder, opened with the session.json beside it: `load("model-autofix")(x)`.

    Raises UsageError where the folder holds no verified model.
    """
    file = Path(folder) / "model.onnx"
    if not file.is_file():
        raise UsageError(f"{folder}: holds no model.onnx; was the model repaired?")
    beside = Path(folder) / "session.json"
    settings = SessionSettings.from_json(json.loads(beside.read_text())) if beside.is_file() else SessionSettings()
    return LoadedModel(open_session(str(file), settings, threads), settings)
