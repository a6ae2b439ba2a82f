"""A model file -> its Python module, seeded as the contract says, and the model it builds. Used by fix.py too."""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import zlib
from typing import Any

import torch


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch."""
    import numpy

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def import_model_file(path: str, seed: int = 0) -> Any:
    """The module of the file at `path`, seeded before import and registered in sys.modules (strict capture needs that)."""
    path = os.path.abspath(path)
    stem = os.path.splitext(os.path.basename(path))[0]
    name = (
        stem
        if stem.isidentifier() and stem not in sys.modules and importlib.util.find_spec(stem) is None
        else f"model_file_{zlib.crc32(path.encode())}"
    )
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    seed_all(seed)
    spec.loader.exec_module(module)
    return module


def find_builder(module: Any, class_name: str = "") -> Any:
    """A function () -> nn.Module: from the named class, `Model`, `build_model` or `model`; raises LookupError."""
    if class_name or hasattr(module, "Model"):
        cls = getattr(module, class_name or "Model", None)
        if cls is None:
            raise LookupError(f"has no class {class_name}")
        if isinstance(cls, torch.nn.Module):
            return lambda: cls
        given = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
        return lambda: cls(**given) if isinstance(given, dict) else cls(*given)
    if hasattr(module, "build_model"):
        return module.build_model
    if hasattr(module, "model"):
        return lambda: module.model
    raise LookupError("defines no class Model, no build_model() and no model")


def build_model(module: Any, class_name: str = "", weights: str = "", seed: int = 0) -> Any:
    """The model in eval mode, seeded right before it is built; with the weights of a checkpoint where given."""
    builder = find_builder(module, class_name)
    seed_all(seed)
    model = builder()
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"is a {type(model).__name__}, not a torch.nn.Module")
    if weights:
        model.load_state_dict(read_weights(weights))
    return model.eval()


def read_weights(path: str) -> dict[str, Any]:
    """The state dict in a .safetensors file or a torch checkpoint (weights_only; the usual `state_dict` or `model` nesting is opened)."""
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        return dict(load_file(path))
    data = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(data, dict) and isinstance(data.get(key), dict):
            data = data[key]
    return dict(data)


def given_inputs(module: Any, seed: int = 0) -> tuple[list[Any], dict[str, Any]]:
    """The file's example call: (positional inputs, keyword inputs), seeded right before; raises LookupError."""
    seed_all(seed)
    if hasattr(module, "get_inputs"):
        args = module.get_inputs()
    elif hasattr(module, "example_inputs"):
        args = module.example_inputs() if callable(module.example_inputs) else module.example_inputs
    else:
        raise LookupError("defines neither get_inputs() nor example_inputs")
    kwargs = dict(module.get_kwargs()) if hasattr(module, "get_kwargs") else {}
    if isinstance(args, dict):
        return [], {**args, **kwargs}
    return (list(args) if isinstance(args, (list, tuple)) else [args]), kwargs
