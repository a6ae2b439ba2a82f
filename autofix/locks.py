"""What a team's policy forbids: loosening locked settings from the command line, and versions that it does not want."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from autofix.errors import UsageError
from autofix.policy import Policy
from autofix.target import Target

POLICY = "autofix.policy"
"""Where a command's context keeps its Policy."""


def _more(locked: Any, asked: Any) -> bool:
    return locked is None or asked > locked


def _less(locked: Any, asked: Any) -> bool:
    return locked is not None and asked < locked


def _no_part(locked: Any, asked: Any) -> bool:
    return not set(asked or ()) <= set(locked or ())


def _beyond(locked: Any, asked: Any) -> bool:
    low, high = locked or (Target().min_opset, Target().max_opset)
    return not low <= asked[0] <= asked[1] <= high


LOOSER: dict[str, Callable[[Any, Any], bool]] = {
    "rtol": _more,
    "atol": _more,
    "max_error": _more,
    "max_latency": lambda locked, asked: locked is not None and asked > locked,
    "min_speedup": _less,
    "fastest": lambda locked, asked: bool(locked) and not asked,
    "allow": _no_part,
    "opset": _beyond,
    "strategies": _no_part,
    "only": lambda locked, asked: bool(locked) and _no_part(locked, asked),
    "without": lambda locked, asked: not set(locked or ()) <= set(asked or ()),
}
"""Whether what is asked for is looser than what is locked; of any other setting every other value is. A tolerance or an error that is locked
without a value is locked at its default, which no value that is asked for is known to be below."""


def looser(name: str, locked: Any, asked: Any) -> bool:
    """Whether a setting asked for on the command line is looser than the locked one."""
    return asked != locked and LOOSER.get(name, lambda a, b: True)(locked, asked)


def policy_of(ctx: click.Context) -> Policy:
    """The policy that a command runs under."""
    policy = ctx.meta.get(POLICY)
    return policy if isinstance(policy, Policy) else Policy()


def locked_value(ctx: click.Context, param: click.Parameter, policy: Policy) -> Any:
    """What a policy sets a parameter to, else the parameter's own default."""
    value = policy.settings.get(str(param.name), param.default if isinstance(param.default, (str, int, float, bool)) else None)
    return param.type_cast_value(ctx, value)


def enforce(ctx: click.Context) -> Policy:
    """The policy of a command whose options are parsed. Raises UsageError where they loosen what is locked, or a version is not wanted."""
    policy = policy_of(ctx)
    check_versions(policy)
    for param in ctx.command.params:
        name = str(param.name)
        if name not in policy.locked or ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        wanted = locked_value(ctx, param, policy)
        if looser(name, wanted, ctx.params[name]):
            raise UsageError(f"--{name.replace('_', '-')} would loosen what {policy.file} locks ({shown(wanted)})")
    return policy


def enforce_target(target: Target, policy: Policy) -> None:
    """The same for a target that comes from elsewhere (a fix log). Raises UsageError."""
    from autofix.options import parse_effects, parse_latency, parse_opset

    read: dict[str, tuple[Callable[[str], Any], Any]] = {
        "rtol": (float, target.rtol),
        "atol": (float, target.atol),
        "max_error": (float, target.max_error),
        "max_latency": (parse_latency, target.max_latency_ms),
        "min_speedup": (float, target.min_speedup),
        "allow": (parse_effects, target.allow),
        "opset": (parse_opset, (target.min_opset, target.max_opset)),
    }
    check_versions(policy)
    for name in sorted(policy.locked & read.keys()):
        parse, asked = read[name]
        locked = parse(str(policy.settings[name])) if name in policy.settings else None
        nothing = asked is None and name in ("max_latency", "min_speedup") and locked is not None
        if nothing or (asked is not None and looser(name, locked, asked)):
            raise UsageError(f"the recipe's target would loosen {name.replace('_', '-')}, which {policy.file} locks ({shown(locked)})")


def shown(value: Any) -> str:
    """A setting's value for people."""
    if value is None or value == () or value == frozenset():
        return "not set"
    if isinstance(value, (tuple, list, frozenset)):
        parts = sorted(str(getattr(v, "value", v)) for v in value) if isinstance(value, frozenset) else [str(v) for v in value]
        return ", ".join(parts)
    return str(value)


def check_versions(policy: Policy) -> None:
    """Raises UsageError where an installed version is not one that the policy wants."""
    from autofix.env import environment

    for package, wanted in policy.versions.items():
        found = environment().get(package)
        if found is None:
            raise UsageError(f"{policy.file}: versions names {package!r}; known are {', '.join(environment())}")
        if not fits(found, wanted, str(policy.file)):
            raise UsageError(f"{policy.file} wants {package} {wanted}; installed is {found}")


def fits(version: str, specifiers: str, file: str = "") -> bool:
    """Whether a version fits every one of ">=2.9,<3" (also ==, !=, <=, >, and == or != with a final .*). Raises UsageError for what can't be read."""
    for specifier in specifiers.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|!=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*", specifier)
        if match is None or (match[3] and match[1] not in ("==", "!=")):
            raise UsageError(f"{file}: {specifier.strip()!r} is no version specifier such as >=2.9")
        wanted, have = numbers(match[2]), numbers(version)
        width = len(wanted) if match[3] else max(len(wanted), len(have))
        a, b = (n + (0,) * (width - len(n)) for n in (have[:width], wanted))
        good = {">=": a >= b, "<=": a <= b, "==": a == b, "!=": a != b, "<": a < b, ">": a > b}[match[1]]
        if not good:
            return False
    return True


def numbers(version: str) -> tuple[int, ...]:
    """The release numbers at a version's beginning: (2, 13, 0) of 2.13.0+cpu."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
