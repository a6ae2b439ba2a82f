"""The command line. The result goes to stdout, progress to stderr; nothing here imports torch.

Exit codes: 0 every target passes, 1 not repaired, 2 bad usage or a file that can't be used, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from autofix import __version__
from autofix.errors import AutofixError, UsageError
from autofix.locks import enforce, enforce_target
from autofix.options import (
    DURATION,
    EFFECTS,
    FILE,
    FOLDER,
    case_options,
    case_spec,
    latency_options,
    make_budget,
    make_limits,
    make_target,
    model_argument,
    no_policy_option,
    output_options,
    strategies_option,
    target_options,
)
from autofix.policy import find_policy

LAZY = {
    "cache": "Recorded outcomes: what was tried on which model, and what helped.",
    "locate": "Name the first operator of a file that errs.",
    "policy": "The settings that hold in this folder.",
}
"""Commands in files of their own, and what they do."""


class Repairs(click.Group):
    """A group whose commands' names may be left out: then the arguments are those of `repair`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `repair` before what names no command."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h", "--version", *LAZY):
            args = ["repair", *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by name; those of LAZY are imported when they are asked for."""
        if cmd_name == "cache":
            from autofix.cache_cli import cache

            return cache
        if cmd_name == "locate":
            from autofix.locate_cli import locate

            return locate
        if cmd_name == "policy":
            from autofix.policy_cli import add_show

            return add_show(self.commands["repair"])
        return super().get_command(ctx, cmd_name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of `repair`, then the other commands."""
        shown = [r for p in self.commands["repair"].get_params(ctx) if isinstance(p, click.Option) and (r := p.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(shown)
        rows = [(name, c.get_short_help_str(70)) for name, c in sorted(self.commands.items()) if not c.hidden]
        rows += LAZY.items()
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))


@click.group(
    cls=Repairs,
    context_settings={"max_content_width": 110},
    invoke_without_command=True,
    options_metavar="MODEL [OPTIONS]",
    subcommand_metavar="| COMMAND ...",
)
@click.version_option(__version__, message="%(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Turn a PyTorch model into a verified ONNX file, repairing what stands in the way.

    MODEL is a Python file with `class Model(nn.Module)` and `get_inputs()` (or FILE.py:CLASS with --input). What is left behind:
    model.onnx, fixlog.md, report.html and fix.py in <stem>-autofix. Exit code 0: every target passes; 1: not repaired;
    2: bad usage or a file that can't be used; 130: interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@contextlib.contextmanager
def progress(quiet: bool) -> Iterator[Any]:
    """A reporter on stderr."""
    from autofix.search import Silent

    if quiet:
        yield Silent()
        return
    from autofix.reporter import make_reporter

    with make_reporter() as reporter:
        yield reporter


@cli.command("repair", hidden=True)
@model_argument
@click.option("--output", "-o", type=FOLDER, metavar="DIR", help="Where the files go; default: <stem>-autofix.")
@case_options
@target_options
@latency_options
@click.option("--allow", type=EFFECTS, default="", metavar="EFFECTS", help="approximate, narrowing: fixes that change what the model means.")
@click.option("--budget", type=DURATION, default="5m", show_default=True, metavar="TIME", help="Time for the whole search.")
@click.option("--max-trials", type=click.IntRange(1), default=40, show_default=True, help="Trials for the whole search.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Trials at a time.")
@strategies_option
@click.option("--only", multiple=True, metavar="NAME", help="Use this strategy and no others; repeatable.")
@click.option("--without", multiple=True, metavar="NAME", help="Do without this strategy; repeatable.")
@click.option("--cache", type=FILE, metavar="FILE", help="The cache of outcomes; default: the user's own.")
@click.option("--layers", type=FILE, multiple=True, metavar="FILE", help="A team's cache, only read; repeatable.")
@click.option("--retry", is_flag=True, help="Search although all was tried in vain before, with these very versions.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
@no_policy_option
@output_options
def repair_command(model: str, as_json: bool, quiet: bool, **options: Any) -> int:
    """Repair MODEL (the name `repair` may be left out)."""
    from autofix.repair import Settings

    policy = enforce(click.get_current_context())
    spec = case_spec(model, **{k: options[k] for k in ("inputs", "dynamic", "weights", "samples", "seed", "random")})
    settings = Settings(
        output=options["output"],
        strategies=options["strategies"],
        cache=options["cache"],
        layers=(*options["layers"], *(() if options["no_cache"] else shared_layers(policy))),
        use_cache=not options["no_cache"],
        budget=make_budget(options["budget"], options["max_trials"]),
        limits=make_limits(options["timeout"], options["memory"]),
        jobs=options["jobs"],
        retry=options["retry"],
        only=options["only"],
        without=options["without"],
    )
    return repaired(spec, make_target(**options), settings, as_json, quiet)


def shared_layers(policy: Any) -> list[Path]:
    """What the team shares at the places that its policy names."""
    if not policy.caches:
        return []
    from autofix.team import team_layers

    return team_layers(policy.caches, lambda text: click.echo(text, err=True))


def repaired(spec: Any, target: Any, settings: Any, as_json: bool, quiet: bool) -> int:
    """Repair, print the summary, return the exit code."""
    from autofix.loader import load_strategies
    from autofix.repair import output_folder, repair
    from autofix.summary import summary_json, summary_text

    with progress(quiet) as reporter:
        found = repair(spec, target, settings, reporter)
    output, code = output_folder(spec, settings), 0 if found.ok else 1
    if as_json:
        click.echo(json.dumps(summary_json(found, output, code), indent=2))
    else:
        click.echo(summary_text(found, spec.file, load_strategies(settings.strategies), output))
    return code


@cli.command("check")
@model_argument
@click.argument("file", metavar="FILE.onnx", type=FILE)
@case_options
@target_options
@no_policy_option
@output_options
def check_command(model: str, file: Path, as_json: bool, quiet: bool, **options: Any) -> int:
    """Verify an existing .onnx file against its model."""
    enforce(click.get_current_context())
    from autofix.isolate import CaseProcess
    from autofix.summary import check_text

    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    spec = case_spec(model, **{k: options[k] for k in ("inputs", "dynamic", "weights", "samples", "seed", "random")})
    with progress(quiet) as reporter:
        reporter.stage(f"loading {spec.file}")
        with CaseProcess(spec, make_target(**options), (), make_limits(options["timeout"], options["memory"])) as process:
            reporter.stage("running the model in eager PyTorch")
            process.reference()
            reporter.stage(f"checking {file}")
            answer = process.check(file.resolve())
    code = 0 if answer["ok"] else 1
    click.echo(json.dumps(answer | {"exit_code": code}, indent=2) if as_json else check_text(answer, file))
    return code


@cli.command("replay")
@click.argument("recipe", metavar="RECIPE.json", type=FILE)
@click.argument("model", metavar="[MODEL]", default="")
@click.option("--output", "-o", type=FOLDER, metavar="DIR", help="Where the files go; default: <stem>-autofix.")
@case_options
@target_options
@click.option("--allow", type=EFFECTS, default="", metavar="EFFECTS", help="approximate, narrowing.")
@strategies_option
@output_options
def replay_command(recipe: Path, model: str, as_json: bool, quiet: bool, **options: Any) -> int:
    """Try just the recipe in a fixlog.json (or a bare recipe), on its own model or on MODEL."""
    from autofix.repair import Settings
    from autofix.replay import logged_case, read_recipe

    wanted, log = read_recipe(recipe)
    given = {k: options[k] for k in ("inputs", "dynamic", "weights", "samples", "seed", "random")}
    spec = case_spec(model, **given) if model else logged_case(recipe, log)
    target = logged_target(log, make_target(**options))
    enforce_target(target, find_policy(Path.cwd()))
    settings = Settings(
        output=options["output"],
        strategies=options["strategies"],
        use_cache=False,
        limits=make_limits(options["timeout"], options["memory"]),
        recipe=wanted,
    )
    return repaired(spec, target, settings, as_json, quiet)


def logged_target(log: dict[str, Any], asked: Any) -> Any:
    """The fix log's target, with what the command line asks for in its place."""
    from click.core import ParameterSource

    from autofix.target import Target

    if not isinstance(log.get("target"), dict):
        return asked
    source = click.get_current_context().get_parameter_source
    fields = {"opset": ("min_opset", "max_opset"), "rtol": ("rtol",), "atol": ("atol",), "threads": ("threads",), "allow": ("allow",)}
    given = [f for option, names in fields.items() if source(option) is ParameterSource.COMMANDLINE for f in names]
    return replace(Target.from_json(log["target"]), **{f: getattr(asked, f) for f in given})


@cli.command("strategies")
@strategies_option
@click.option("--symptoms", is_flag=True, help="List the symptoms instead, with the strategies that treat each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def strategies_command(strategies: tuple[Path, ...], symptoms: bool, as_json: bool) -> None:
    """List the strategies, or the symptoms that they treat."""
    from autofix.catalog import strategies_text, strategy_rows, symptom_rows, symptoms_text
    from autofix.loader import load_strategies

    registry = load_strategies(strategies)
    if as_json:
        click.echo(json.dumps(symptom_rows(registry) if symptoms else strategy_rows(registry), indent=2))
    else:
        click.echo(symptoms_text(registry) if symptoms else strategies_text(registry))


@cli.command("explain")
@click.argument("strategy", metavar="STRATEGY")
@strategies_option
def explain_command(strategy: str, strategies: tuple[Path, ...]) -> None:
    """Say what a strategy does, when it helps and why it is safe."""
    from autofix.catalog import explanation
    from autofix.loader import load_strategies

    click.echo(explanation(strategy, load_strategies(strategies)))


@cli.command("test")
@click.argument("folder", metavar="DIR", type=FOLDER)
def test_command(folder: Path) -> int:
    """Run the examples of the strategies in a folder."""
    from autofix.testing import main as run_examples

    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    return run_examples([str(folder)])


def fail(message: str, as_json: bool, code: int = 2) -> int:
    """One line on stderr, with `--json` a document on stdout too."""
    line = " ".join(message.split())
    click.echo(f"autofix: {line}", err=True)
    if as_json:
        click.echo(json.dumps({"error": line, "exit_code": code}))
    return code


def run(arguments: list[str] | None = None) -> int:
    """The command line as a function: returns the exit code, never raises for what a person can cause."""
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        code = cli.main(args=arguments, prog_name="autofix", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (click.exceptions.Abort, KeyboardInterrupt):
        return fail("interrupted", as_json, 130)
    except click.ClickException as error:
        return fail(error.format_message(), as_json)
    except AutofixError as error:
        return fail(str(error), as_json, error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        with tempfile.NamedTemporaryFile("w", prefix="autofix-error-", suffix=".log", delete=False) as log:
            traceback.print_exc(file=log)
        return fail(f"internal error, {type(error).__name__}: {error}; the details are in {log.name}", as_json)


def interrupt(number: int, frame: object) -> None:
    """A request to end is treated as Ctrl-C."""
    raise KeyboardInterrupt


def main() -> None:
    """Entry of the console script."""
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, interrupt)
    sys.exit(run())


if __name__ == "__main__":
    main()
