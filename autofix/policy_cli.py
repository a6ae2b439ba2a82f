"""`autofix policy show`: which settings hold in this folder, and where each is from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from autofix.locks import enforce, shown
from autofix.policy import KEYS, find_policy


@click.group("policy")
def policy() -> None:
    """The settings that hold in this folder."""


def explained(ctx: click.Context) -> list[dict[str, Any]]:
    """For each setting: {name, value, from, locked}; `from` is "default", "command line", "environment" or the policy file."""
    held = enforce(ctx)
    names = {ParameterSource.COMMANDLINE: "command line", ParameterSource.DEFAULT_MAP: str(held.file), ParameterSource.ENVIRONMENT: "environment"}
    rows: list[dict[str, Any]] = []
    for name in KEYS:
        if name in ctx.params:
            source = names.get(ctx.get_parameter_source(name) or ParameterSource.DEFAULT, "default")
            rows.append({"name": name.replace("_", "-"), "value": shown(ctx.params[name]), "from": source, "locked": name in held.locked})
    rows += [{"name": f"versions.{k}", "value": v, "from": str(held.file), "locked": True} for k, v in held.versions.items()]
    rows += [{"name": "caches", "value": url, "from": str(held.file), "locked": False} for url in held.caches]
    return rows


def show(as_json: bool, **options: Any) -> None:
    """Show every setting that holds here, and where it is from: a file, the command line, or the default.

    Takes the options of a repair, to show what they would change.
    """
    rows = explained(click.get_current_context())
    file = find_policy(Path.cwd()).file
    if as_json:
        click.echo(json.dumps({"file": str(file) if file else None, "settings": rows}, indent=2))
        return
    click.echo(str(file) if file else "no autofix.toml and no [tool.autofix] in a pyproject.toml here or above: the defaults hold")
    width = max(len(f"{r['name']} = {r['value']}") for r in rows)
    for row in rows:
        text = f"{row['name']} = {row['value']}"
        place = Path(row["from"]).name if file and row["from"] == str(file) else row["from"]
        click.echo(f"  {text:<{min(width, 60)}}  {place}{', locked' if row['locked'] else ''}")


def add_show(repair: click.Command) -> click.Group:
    """The group with `show`, which takes the options of `repair`."""
    params = [p for p in repair.params if isinstance(p, click.Option) and p.name != "quiet"]
    policy.add_command(click.Command("show", params=list(params), callback=show, help=show.__doc__))
    return policy
