"""`autofix cache ...`: look into the cache, share it, clean it. Tables and JSON go to stdout, remarks to stderr."""

from __future__ import annotations

import functools
import json
import sqlite3
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from autofix.errors import AutofixError


class _Failed(click.ClickException):
    exit_code = 2


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Adds --cache and --json, and turns errors into one line and exit code 2."""

    @click.option("--cache", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="The cache file; default: the user's own.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except AutofixError as error:
            raise _Failed(str(error)) from None
        except sqlite3.Error as error:
            raise _Failed(f"cache: {error}") from None

    return wrapped


def _open(file: Path | None, *, write: bool = False) -> Any:
    from autofix.cache import Cache
    from autofix.errors import CacheError

    opened = Cache.open(file)
    if opened.problem:
        if write:
            opened.close()
            raise CacheError(opened.problem)
        click.echo(opened.problem, err=True)
    return opened


def _print_json(data: object) -> None:
    click.echo(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False))


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


@click.group()
def cache() -> None:
    """Recorded outcomes: what was tried on which model, and what helped."""


@cache.command("stats")
@_command
def stats_command(file: Path | None, as_json: bool) -> None:
    """Count what the cache knows."""
    with _open(file) as opened:
        data = opened.stats()
    if as_json:
        _print_json(data)
        return
    click.echo(f"{data['path']}  {data['bytes'] / 1e6:.1f} MB  {data['cases_tried']} cases tried, {data['cases_repaired']} repaired")
    _table("Rows", ("table", "rows"), data["rows"].items())
    if data["verdicts"]:
        _table("Outcomes", ("verdict", "trials"), data["verdicts"].items())
        _table("Symptoms", ("symptom", "trials"), data["symptoms"].items())
        _table(
            "Strategies", ("strategy", "tries", "rate", "seconds"), ((n, s["tries"], s["rate"], s["seconds"]) for n, s in data["strategies"].items())
        )
        _table(
            "Origins",
            ("team", "user", "machine", "outcomes", "retracted", "weight", "id"),
            ([o[k] for k in ("team", "user", "machine", "outcomes", "retracted", "weight", "id")] for o in data["origins"]),
        )


@cache.command("show")
@click.argument("case")
@_command
def show_command(case: str, file: Path | None, as_json: bool) -> None:
    """Show what was tried on the cases whose id or name starts with CASE."""
    with _open(file) as opened:
        found = opened.show(case)
    if as_json:
        _print_json(found)
    elif not found:
        raise _Failed(f"no recorded case starts with {case!r}; `autofix cache stats` says what is there")
    else:
        names = dict.fromkeys((row["case"], row["name"]) for row in found)
        for case_id, name in names:
            rows = [r for r in found if r["case"] == case_id]
            cells = (
                [
                    r["recipe_id"][:12],
                    r["recipe"],
                    r["verdict"] + (" (retracted)" if r["retracted"] else ""),
                    r["stage"],
                    r["symptom"],
                    r["effect"],
                    r["seconds"],
                ]
                for r in rows
            )
            _table(f"{name or '(no name)'}  {case_id}", ("id", "recipe", "verdict", "stage", "symptom", "effect", "seconds"), cells)


@cache.command("export")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write here (.gz compresses); default: stdout.")
@click.option("--redact", is_flag=True, help="Leave out names, model source and paths, and who recorded.")
@click.option("--ranking-only", is_flag=True, help="Only which strategies helped against which symptoms: no cases, recipes or origins.")
@click.option("--origin", "words", multiple=True, metavar="WORD", help="Only what this team, user or kind of machine recorded; repeatable.")
@_command
def export_command(output: Path | None, redact: bool, ranking_only: bool, words: tuple[str, ...], file: Path | None, as_json: bool) -> None:
    """Write all rows as sorted JSON lines, for git, mail or `cache merge`."""
    from autofix.browse import origin_ids
    from autofix.exchange import export_file, export_lines

    with _open(file) as opened:
        chosen = origin_ids(opened.connection, words) if words else None
        if output is None:
            for line in export_lines(opened.connection, redact=redact, origins=chosen, ranking_only=ranking_only):
                sys.stdout.write(line)
            return
        count = export_file(opened.connection, output, redact=redact, origins=chosen, ranking_only=ranking_only)
    if as_json:
        _print_json({"file": str(output), "rows": count})
    else:
        click.echo(f"{count} rows written to {output}")


@cache.command("merge")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_command
def merge_command(files: tuple[Path, ...], file: Path | None, as_json: bool) -> None:
    """Add the rows of exports (.jsonl, .jsonl.gz) or other cache files."""
    from autofix.errors import CacheError
    from autofix.exchange import merge_file

    with _open(file, write=True) as opened:
        merged = {str(path): merge_file(opened.connection, path) for path in files}
    if as_json:
        _print_json({name: one.to_json() for name, one in merged.items()})
    else:
        for name, one in merged.items():
            click.echo(f"{name}: {one}")
    useless = [name for name, one in merged.items() if not one.read and one.refused]
    if useless:
        raise CacheError(f"{', '.join(useless)}: no row of it could be used; autofix cache export makes what can be merged")


@cache.command("retract")
@click.argument("case")
@click.argument("recipe")
@click.option("--reason", default="", help="One line for those who wonder.")
@_command
def retract_command(case: str, recipe: str, reason: str, file: Path | None, as_json: bool) -> None:
    """Withdraw the recorded passes of RECIPE for CASE (ids or their beginnings)."""
    from autofix.browse import one_id

    with _open(file, write=True) as opened:
        case_id = one_id(opened.connection, "outcomes", "case_id", case)
        count = opened.retract(case_id, one_id(opened.connection, "outcomes", "recipe_id", recipe), reason)
    if as_json:
        _print_json({"retracted": count})
    else:
        click.echo(f"{count} outcomes withdrawn")


@cache.command("verify")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@_command
def verify_command(path: Path | None, file: Path | None, as_json: bool) -> None:
    """Check the file, every row's id and shape, and the counts; exit 1 if anything is wrong."""
    from autofix.browse import verify
    from autofix.connect import default_path, open_layer

    chosen = path or file or default_path()
    connection = open_layer(chosen)
    try:
        faults = verify(connection)
    finally:
        connection.close()
    if as_json:
        _print_json({"file": str(chosen), "faults": faults})
    else:
        click.echo("\n".join(faults) or f"{chosen}: all is well")
    if faults:
        raise SystemExit(1)


@cache.command("gc")
@click.option("--older-than", type=click.IntRange(0, 100_000), metavar="DAYS", help="Also drop outcomes that came in longer ago than this.")
@_command
def gc_command(older_than: int | None, file: Path | None, as_json: bool) -> None:
    """Drop withdrawn and unused rows, count anew, shrink the file."""
    from autofix.browse import collect_garbage

    with _open(file, write=True) as opened:
        dropped = collect_garbage(opened.connection, older_than)
    if as_json:
        _print_json(dropped)
    else:
        click.echo(
            ", ".join(f"{count} {table}" for table, count in dropped.items() if count) + " dropped" if any(dropped.values()) else "nothing to drop"
        )


def _places(url: str | None) -> tuple[str, ...]:
    """The place that is named, else those of the team's policy. Raises UsageError where there is neither."""
    from autofix.errors import UsageError
    from autofix.policy import find_policy

    places = (url,) if url else find_policy(Path.cwd()).caches
    if not places:
        raise UsageError('which place? give a URL, or write caches = ["s3://..."] into [tool.autofix]')
    return places


@cache.command("push")
@click.argument("url", required=False)
@click.option("--redact", is_flag=True, help="Leave out names, model source and paths, and who recorded.")
@click.option("--origin", "words", multiple=True, metavar="WORD", help="Only what this team, user or kind of machine recorded; repeatable.")
@_command
def push_command(url: str | None, redact: bool, words: tuple[str, ...], file: Path | None, as_json: bool) -> None:
    """Add what the place at URL (any that fsspec knows) lacks; without a URL, at the first of the team's `caches`."""
    from autofix.browse import origin_ids
    from autofix.remote import push

    place = _places(url)[0]
    with _open(file, write=True) as opened:
        pushed = push(opened.connection, place, redact=redact, origins=origin_ids(opened.connection, words) if words else None)
    if as_json:
        _print_json({"rows": pushed.rows, "segments": pushed.segments})
    else:
        click.echo(str(pushed))


@cache.command("pull")
@click.argument("url", required=False)
@_command
def pull_command(url: str | None, file: Path | None, as_json: bool) -> None:
    """Add what others pushed to URL; without a URL, to every one of the team's `caches`."""
    from autofix.exchange import Merged
    from autofix.remote import pull

    places, merged = _places(url), Merged()
    with _open(file, write=True) as opened:
        for place in places:
            merged += pull(opened.connection, place)
    if as_json:
        _print_json(merged.to_json())
    else:
        click.echo(str(merged))
