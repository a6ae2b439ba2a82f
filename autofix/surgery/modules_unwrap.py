"""Take away what stands around modules and weights only for training or speed: wrappers, parametrizations, pruning masks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize, prune

WRAPPERS = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OffloadWrapper": "_checkpoint_wrapped_module",
    "OptimizedModule": "_orig_mod",
    "AveragedModel": "module",
}
"""Class name of a wrapper whose forward calls the module that the attribute holds."""


def wrapped_module(module: nn.Module) -> nn.Module | None:
    """What a wrapper of PyTorch's own holds; None for other modules."""
    attribute = WRAPPERS.get(type(module).__name__)
    if attribute is None or not type(module).__module__.startswith("torch."):
        return None
    inner = getattr(module, attribute, None)
    return inner if isinstance(inner, nn.Module) else None


def innermost(module: nn.Module) -> nn.Module:
    """The module under all wrappers."""
    inner = wrapped_module(module)
    return module if inner is None else innermost(inner)


def unwrap_all(model: nn.Module, changed: list[str], path: str = "") -> nn.Module:
    """The model without wrappers at any depth; submodules are replaced in place."""
    plain = innermost(model)
    if plain is not model:
        changed.append(path or "the model")
    for name, child in list(plain._modules.items()):
        if child is not None:
            replaced = unwrap_all(child, changed, f"{path}.{name}".lstrip("."))
            if replaced is not child:
                plain._modules[name] = replaced
    return plain


def uncompile(model: nn.Module, changed: list[str]) -> None:
    """Undo `module.compile()` and instance attributes that hold a compiled forward."""
    for path, module in model.named_modules():
        if getattr(module, "_compiled_call_impl", None) is not None:
            module._compiled_call_impl = None
            changed.append(path)
        own = module.__dict__.get("forward")
        original = getattr(own, "_torchdynamo_orig_callable", None)
        if original is not None:
            module.__dict__["forward"] = original
            changed.append(path)


def freeze_weights(model: nn.Module, changed: list[str]) -> None:
    """Store each computed weight as it is in inference: parametrizations, weight_norm, spectral_norm and pruning."""
    with torch.no_grad():
        for path, module in list(model.named_modules()):
            if parametrize.is_parametrized(module):
                for name in list(module.parametrizations):
                    parametrize.remove_parametrizations(module, name, leave_parametrized=True)
                    changed.append(f"{path}.{name}".lstrip("."))
            for key, hook in list(module._forward_pre_hooks.items()):
                if type(hook).__name__ in ("WeightNorm", "SpectralNorm") and type(hook).__module__.startswith("torch.nn.utils"):
                    freeze_hooked_weight(module, key, hook)
                    changed.append(f"{path}.{hook.name}".lstrip("."))
                elif isinstance(hook, prune.BasePruningMethod):
                    prune.remove(module, hook._tensor_name)  # type: ignore[no-untyped-call]
                    changed.append(f"{path}.{hook._tensor_name}".lstrip("."))


def freeze_hooked_weight(module: nn.Module, key: int, hook: Any) -> None:
    """Replace a weight that a hook computes before each call by its value."""
    hook(module, ())  # computes the weight as the next call would
    weight = getattr(module, hook.name).detach().clone()
    del module._forward_pre_hooks[key]
    module.__dict__.pop(hook.name, None)
    for suffix in ("_g", "_v", "_orig"):
        module._parameters.pop(hook.name + suffix, None)
    for suffix in ("_u", "_v"):
        module._buffers.pop(hook.name + suffix, None)
    module._buffers.pop(hook.name, None)
    module._parameters.pop(hook.name, None)
    module.register_parameter(hook.name, nn.Parameter(weight, requires_grad=False))


def plain_modules(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """The model without wrappers, compiled calls and computed weights, and the paths that changed."""
    changed: list[str] = []
    model = unwrap_all(model, changed)
    uncompile(model, changed)
    freeze_weights(model, changed)
    return model, changed
