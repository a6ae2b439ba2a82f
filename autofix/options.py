"""The command line's value types (opset ranges, durations, latencies, sizes, effects) and the options that commands share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from autofix.errors import UsageError
from autofix.target import Effect, Target


class FiniteRange(click.FloatRange):
    """A number within a range; NaN, which compares with nothing, and infinity are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return number


SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
MILLISECONDS = {"": 1.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "s": 1000.0}
MEBIBYTES = {"": 1.0, "m": 1.0, "mb": 1.0, "mib": 1.0, "g": 1024.0, "gb": 1024.0, "gib": 1024.0}


class Parsed(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A click type made of a function that raises ValueError with what is expected."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value; values that are no text came through here already."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(f"{value!r} is not {error}", param, ctx)


def with_unit(text: str, units: dict[str, float], expected: str) -> float:
    """A positive number with a unit; raises ValueError with what is expected."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-zµ]*)", text.strip().lower())
    if not match or match[2] not in units or float(match[1]) <= 0:
        raise ValueError(expected)
    return float(match[1]) * units[match[2]]


def parse_duration(text: str) -> float:
    """Seconds in "90", "90s", "10m", "1.5h"."""
    return with_unit(text, SECONDS, "a duration such as 90s, 10m or 1h")


def parse_latency(text: str) -> float:
    """Milliseconds in "8ms", "0.5s", "800us"."""
    return with_unit(text, MILLISECONDS, "a latency such as 8ms or 800us")


def parse_memory(text: str) -> float:
    """MiB in "4096", "4096M", "8G"."""
    return with_unit(text, MEBIBYTES, "a size such as 4096M or 8G")


def parse_opset(text: str) -> tuple[int, int]:
    """(lowest, highest) in "17" or "13-20"."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 7 <= low <= high:
        raise ValueError("an opset such as 17 or a range such as 13-20 (7 at least)")
    if high > Target().max_opset:
        from onnx.defs import onnx_opset_version  # a fifth of a second, for who asks beyond the default range

        if high > onnx_opset_version():
            raise ValueError(f"an opset up to {onnx_opset_version()}, the newest that the installed onnx knows")
    return low, high


def parse_effects(text: str) -> frozenset[Effect]:
    """Effects in "approximate,narrowing"."""
    names = [n.strip().lower() for n in text.split(",") if n.strip()]
    known = {e.value: e for e in Effect if e is not Effect.EXACT}
    if any(n not in known for n in names):
        raise ValueError("approximate, narrowing or both with a comma between")
    return frozenset(known[n] for n in names)


DURATION = Parsed("duration", parse_duration)
LATENCY = Parsed("latency", parse_latency)
MEMORY = Parsed("size", parse_memory)
OPSET = Parsed("opset", parse_opset)
EFFECTS = Parsed("effects", parse_effects)
Command = TypeVar("Command", bound=Callable[..., Any])
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)


def case_options(command: Command) -> Command:
    """What says how a model file is to be read."""
    for option in (
        click.option("--seed", type=int, default=0, show_default=True, help="Seed for weights and inputs."),
        click.option("--weights", type=FILE, metavar="FILE", help="Checkpoint (.pt, .pth, .safetensors) for the model."),
        click.option("--inputs", "samples", type=FILE, metavar="FILE", help="Real inputs to verify with (.npz or .pt)."),
        click.option(
            "--input", "inputs", multiple=True, metavar="NAME=DTYPE[SHAPE]", help="An example input, such as x=float32[batch,3,224,224]; repeatable."
        ),
        click.option(
            "--random",
            type=click.Choice(["inputs", "seeded"]),
            help="What becomes of random numbers that forward draws: inputs, or constants of the file.",
        ),
        click.option("--dynamic", multiple=True, metavar="NAME:AXIS=SYMBOL", help="Dynamic axes, such as x:0=batch,1=seq; repeatable."),
    ):
        command = option(command)
    return command


def target_options(command: Command) -> Command:
    """What must hold, and the limits of one process."""
    for option in (
        click.option("--memory", type=MEMORY, metavar="SIZE", help="Memory limit of one trial, such as 8G; default: 3/4 of the machine."),
        click.option("--timeout", type=DURATION, default="4m", show_default=True, metavar="TIME", help="Time limit of one trial."),
        click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads for eager PyTorch and ONNX Runtime."),
        click.option("--atol", type=FiniteRange(0), help="Absolute tolerance; default by dtype (float32: 1e-5)."),
        click.option("--rtol", type=FiniteRange(0), help="Relative tolerance; default by dtype (float32: 1e-3)."),
        click.option("--opset", type=OPSET, metavar="N|MIN-MAX", help="The opset wanted, or a range; default 11-24."),
    ):
        command = option(command)
    return command


def output_options(command: Command) -> Command:
    """How much is printed, and in what form."""
    command = click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")(command)


strategies_option = click.option("--strategies", type=FOLDER, multiple=True, metavar="DIR", help="A folder with further strategies; repeatable.")
model_argument = click.argument("model", metavar="MODEL")


def with_policy(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Eager callback: the nearest policy file gives this command's defaults."""
    from autofix.locks import POLICY
    from autofix.policy import find_policy

    policy = find_policy(Path.cwd())
    if value and policy.locked:
        raise UsageError(f"--no-policy would loosen what {policy.file} locks")
    if not value:
        ctx.meta[POLICY] = policy
        names = {p.name for p in ctx.command.params}
        ctx.default_map = {k: v for k, v in policy.settings.items() if k in names} | dict(ctx.default_map or {})
    return value


no_policy_option = click.option(
    "--no-policy", is_flag=True, is_eager=True, expose_value=False, callback=with_policy, help="Ignore autofix.toml and [tool.autofix]."
)


def latency_options(command: Command) -> Command:
    """How fast the file must be, and what that may cost."""
    for option in (
        click.option("--calibration", type=FILE, metavar="FILE", help="Real inputs (.npz or .pt) for fixes that need some, such as static int8."),
        click.option("--max-error", type=FiniteRange(0, min_open=True), help="Relative RMS error that approximate fixes may bring, such as 0.01."),
        click.option("--fastest", is_flag=True, help="Go on until no strategy makes it faster."),
        click.option("--min-speedup", type=FiniteRange(0, min_open=True), help="ONNX Runtime must be this much faster than eager PyTorch."),
        click.option("--max-latency", type=LATENCY, metavar="TIME", help="ONNX Runtime must need no longer than this, such as 8ms."),
    ):
        command = option(command)
    return command


def case_spec(
    model: str, inputs: tuple[str, ...], dynamic: tuple[str, ...], weights: Path | None, samples: Path | None, seed: int, random: str | None = None
) -> Any:
    """A CaseSpec from the command line; raises UsageError for a file that is not there."""
    from autofix.case import CaseSpec

    file, colon, name = model.rpartition(":")
    if not colon or not name.isidentifier():
        file, name = model, ""
    if not Path(file).exists() and "/" not in file and not file.endswith(".py"):
        raise UsageError(f"{file}: neither a file nor a command; see `autofix --help`")
    for path in (weights, samples):
        if path is not None and not path.is_file():
            raise UsageError(f"{path}: no such file")
    return CaseSpec(
        file, name, inputs, dynamic, str(weights.resolve()) if weights else "", str(samples.resolve()) if samples else "", seed, random or ""
    )


def make_limits(timeout: float, memory: float | None) -> Any:
    """Limits of one trial."""
    from autofix.isolate import Limits, default_memory_mb

    return Limits(timeout, memory or default_memory_mb())


def make_budget(seconds: float, trials: int) -> Any:
    """The search's budget."""
    from autofix.search import Budget

    return Budget(seconds, trials)


def make_target(**options: Any) -> Any:
    """The Target that the options ask for."""

    if options.get("calibration") and not options["calibration"].is_file():
        raise UsageError(f"{options['calibration']}: no such file")
    low, high = options["opset"] or (Target().min_opset, Target().max_opset)
    return Target(
        min_opset=low,
        max_opset=high,
        rtol=options["rtol"],
        atol=options["atol"],
        max_latency_ms=options.get("max_latency"),
        min_speedup=options.get("min_speedup"),
        allow=options.get("allow") or frozenset(),
        threads=options["threads"],
        max_error=options.get("max_error"),
        fastest=bool(options.get("fastest")),
        calibration=str(options["calibration"].resolve()) if options.get("calibration") else "",
    )
