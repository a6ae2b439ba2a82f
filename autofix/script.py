"""fix.py: a stand-alone script that reproduces a repair with its code in plain sight.

`script_text` writes the repair as constants and four short functions and lets bundle.py gather what these need. Config and runtime fixes
are applied here, so that they stand in the script as the settings that they made.
"""

from __future__ import annotations

import ast
import hashlib
import os
import pprint
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autofix.approximate import approximate_fixes
from autofix.attempt import final_config
from autofix.case import CaseSpec
from autofix.recipe import Fix, Level, Recipe
from autofix.rewrite import changed_units, class_names, function_units, unit_source
from autofix.session import SessionSettings
from autofix.sourcefile import read_source_file
from autofix.strategy import Strategy
from autofix.summary import noise_lines
from autofix.tables import PARAMETER, pruned_bundle
from autofix.target import Target

MOST_SIZES = 4
"""Further sizes of dynamic axes that fix.py verifies, taken from the sets that the search used."""

INSTALL = '''\
# Digests of the functions that they replace: a changed model needs a new repair.
ORIGINALS: dict[str, dict[str, str]] = {originals}


def fix_source(folder: str, module: Any) -> None:
    """Install the rewritten functions, and what they need, in the modules that hold the originals."""
    for file, functions in REWRITTEN.items():
        install_rewritten_source(file, find_source_module(file, folder, module), functions, ADDED.get(file, {{}}), ORIGINALS.get(file, {{}}))'''


def literal(value: Any, width: int = 140) -> str:
    """Plain data as Python source."""
    return pprint.pformat(value, width=width, sort_dicts=False)


def quoted(text: str) -> str:
    """Source text as a Python literal that reads like the source."""
    for marks in ("'''", '"""'):
        if marks not in text and not text.endswith((marks[0], "\\")):
            return f"{'r' if chr(92) in text else ''}{marks}\n{text}{marks}"
    return repr(text)


def config_of(recipe: Recipe, registry: Mapping[str, Strategy], target: Target) -> dict[str, Any]:
    """The ExportConfig that the recipe's trial used, as JSON data with the capture mode and the opset written out."""
    config = final_config(recipe, registry, target)
    return {"capture": config.capture, **config.to_json()}


def call_text(fix: Fix, artifact: str, returns: bool = True) -> str:
    """`artifact = strategy(artifact, name=value)`; for program fixes None stands for the plan itself."""
    params = {k: v for k, v in fix.params.items() if not (fix.level is Level.SOURCE and k == "file")}
    inner = ", ".join([artifact, *(f"{k}={literal(v)}" for k, v in params.items())])
    more = "" if returns else f" or {artifact}"
    return f"{artifact} = {fix.strategy}({inner}){more}"


def fix_function(name: str, argument: str, doc: str, fixes: tuple[Fix, ...]) -> str:
    """A function that applies the fixes of one level in order."""
    lines = [f"def {name}({argument}: Any) -> Any:", f'    """{doc}"""']
    for fix in fixes:
        lines += ["    " + line for line in call_text(fix, argument, returns=fix.level is not Level.PROGRAM).splitlines()]
    return "\n".join([*lines, f"    return {argument}"])


Units = dict[str, dict[str, str]]
"""{file: {name of a function, class or group of statements: source}}."""


def source_functions(sources: Mapping[str, Mapping[str, str]]) -> tuple[Units, Units, Units]:
    """(functions that replace others, what is new, digests of the originals) of a trial's sources.json; statements in a row are one unit."""
    rewritten: Units = {}
    added: Units = {}
    originals: Units = {}
    for file, entry in sources.items():
        old, new = entry["old"], entry["new"]
        tree = ast.parse(old)
        before = function_units(tree, class_names(tree))
        rewritten[file] = {}
        last = ""
        for name, node in changed_units(old, new):
            text = unit_source(node, new) + "\n"
            if name in before:
                rewritten[file][name] = text
                digest = hashlib.sha256(unit_source(before[name], old).strip().encode()).hexdigest()[:16]
                originals.setdefault(file, {})[name] = digest
                continue
            others = added.setdefault(file, {})
            if name.startswith("<"):
                name = last or f"<statements {len(others)}>"
                text = others.get(name, "") + text
            others[name] = text
            last = name if name.startswith("<") else ""
    return rewritten, added, originals


def source_part(sources: Mapping[str, Mapping[str, str]]) -> str:
    """Constants with the rewritten functions, and the function that installs them."""
    rewritten, added, originals = source_functions(sources)
    lines = []
    for title, name, units in (("The rewritten functions", "REWRITTEN", rewritten), ("What they need besides", "ADDED", added)):
        lines += [f"# {title}, by file and name.", f"{name}: dict[str, dict[str, str]] = {{"]
        for file, functions in units.items():
            lines.append(f"    {file!r}: {{")
            lines += [f"        {name!r}: {quoted(text)}," for name, text in functions.items()]
            lines.append("    },")
        lines.append("}")
    return "\n".join([*lines, INSTALL.format(originals=literal(originals))])


def example_part(spec: CaseSpec) -> str:
    """The function that makes the example call."""
    head = ["def example_call(module: Any, seed: int) -> tuple[list[Any], dict[str, Any]]:", '    """The arguments of the given call."""']
    if spec.inputs:
        return "\n".join([*head, f"    args, kwargs, _ = inputs_from_texts({literal(spec.inputs)}, seed)", "    return args, kwargs"])
    return "\n".join([*head, "    return given_inputs(module, seed)"])


def samples_part(spec: CaseSpec) -> str:
    """The function that reads the samples, where there are some."""
    head = ["def sample_inputs(model: Any, given: Any) -> list[Any]:", '    """Recorded inputs, where their file is at hand."""']
    if not spec.samples:
        return "\n".join([*head, "    return []"])
    return "\n".join(
        [*head, f"    file = {os.path.abspath(spec.samples)!r}", "    return sample_sets(file, model, given) if os.path.isfile(file) else []"]
    )


def noise_part(spec: CaseSpec, noise: list[dict[str, Any]]) -> str:
    """What the noise inputs hold, and the functions that make them."""
    holds = [f"#   {one['name']}: {one['holds']}; made of {one['operator']}, {Path(one['file']).name}:{one['line']}" for one in noise]
    return "\n".join(
        [
            "# Inputs of the file that forward draws itself; who runs the file draws them anew for each call.",
            *holds,
            f"NOISE: dict[str, str] = {literal({one['name']: one['form'] for one in noise})}",
            "",
            "",
            "def wrap_noise(model: Any) -> Any:",
            '    """The model with its draws as inputs."""',
            "    return wrap_random(model, tuple(NOISE), tuple(NOISE.values()))",
            "",
            "",
            "def add_noise(build: Any, sets: list[Any]) -> list[Any]:",
            '    """The input sets with the noise that eager PyTorch draws on each."""',
            f"    return recorded_noise(build, sets, NOISE, frozenset(), {spec.seed!r})",
        ]
    )


def seeded_part(spec: CaseSpec) -> str:
    """The function that seeds forward."""
    lines = ["def wrap_noise(model: Any) -> Any:", '    """The model, seeded before each call: what it draws are constants of the file."""']
    return "\n".join([*lines, f"    return seed_draws(model, {spec.seed!r})"])


def other_shapes(facts: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{set name: {input: shape, or a number's value}} of some verified sets of other sizes, the captured example among them."""
    chosen: dict[str, dict[str, Any]] = {}
    for entry in facts.get("input_sets", ()):
        name, shapes = str(entry.get("name", "")), dict(entry.get("shapes") or {})
        if entry.get("origin") != "generated" or not shapes:
            continue
        plain = entry.get("resized") and not entry.get("advisory") and entry.get("kind") == "sizes"
        if name == config.get("example") or (plain and len(chosen) < MOST_SIZES):
            chosen[name] = shapes
    return chosen


def header(spec: CaseSpec, recipe: Recipe, effect: str, conceded: list[str], version: str, noise: list[str]) -> str:
    """The docstring of fix.py: what it does, what it concedes, how it is run."""
    lines = [
        f"Repair of {Path(spec.file).name}: export it to ONNX, verify the file, write model.onnx. Written by autofix {version}.",
        "",
        f"Effect: {effect}.",
        *(["Conceded:", *(f"  - {c}" for c in conceded)] if conceded else []),
        f"Recipe: {recipe}",
        *(["Random draws are inputs of the file:", *(f"  - {line}" for line in noise)] if noise else []),
        "",
        "Usage: python fix.py [MODEL_FILE] [--output model.onnx]",
        "",
        "Needs torch, onnx, onnxscript, numpy and onnxruntime. The repair comes first, then the strategies' code, then the export and the",
        "verification: the given inputs, get_more_inputs and other sizes of the dynamic axes are compared with the untouched model in eager PyTorch.",
    ]
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return f'#!/usr/bin/env python\n"""{text}\n"""\n'


def script_text(
    spec: CaseSpec,
    recipe: Recipe,
    facts: Mapping[str, Any],
    target: Target,
    signature: Mapping[str, Any],
    session: Mapping[str, Any],
    sources: Mapping[str, Mapping[str, str]],
    registry: Mapping[str, Strategy],
    output: Path,
    *,
    effect: str,
    conceded: list[str],
    version: str,
) -> str:
    """The text of fix.py; raises BundleError where a strategy's code can't stand alone."""
    config = config_of(recipe, registry, target)
    axes = {str(leaf["name"]): {int(a): str(s) for a, s in dict(leaf.get("axes") or {}).items()} for leaf in facts.get("inputs", ())}
    mutated = [str(n) for n in facts.get("mutated_buffers", ())]
    fresh = bool(mutated or facts.get("mutated_parameters") or facts.get("mutated_attributes")) or float(facts.get("weights_mb", 0)) < 64
    model_file = os.path.abspath(spec.file)
    bundled = [f for level in (Level.MODULE, Level.PROGRAM, Level.ONNX) for f in recipe.at(level)]
    ours = sorted({f.strategy for f in bundled})
    lines = ["from typing import Any", "", "from autofix.fixrun import FixPlan, fix_main"]
    if sources:
        lines.append("from autofix.fixrun import find_source_module, install_rewritten_source")
    lines.append("from autofix.case import inputs_from_texts" if spec.inputs else "from autofix.loading import given_inputs")
    if spec.samples:
        lines += ["import os", "from autofix.samples import sample_sets"]
    lines += [f"from autofix.strategies.{name} import {name}" for name in ours]
    noise = list(facts.get("noise_inputs", ()))
    if noise:
        lines.append("from autofix.random_inputs import recorded_noise, wrap_random")
    seeded = bool(facts.get("seeded_draws"))
    if seeded:
        lines.append("from autofix.seeded_draws import seed_draws")
    usual = SessionSettings().to_json()
    settings = [
        *comments("Config fixes, applied already:", recipe.at(Level.CONFIG), registry),
        f"CONFIG: dict[str, Any] = {literal(config)}",
        *comments("Runtime fixes, applied already:", recipe.at(Level.RUNTIME), registry),
        f"SESSION: dict[str, Any] = {literal({k: v for k, v in session.items() if v != usual.get(k)})}",
        f"TARGET: dict[str, Any] = {literal({k: v for k, v in target.to_json().items() if v != Target().to_json().get(k)})}",
        f"AXES: dict[str, dict[int, str]] = {literal({k: v for k, v in axes.items() if v})}",
        f"SIGNATURE: dict[str, Any] = {literal(dict(signature))}",
        "# Other sizes to verify: the given inputs repeated or cut to these shapes.",
        f"SHAPES: dict[str, dict[str, Any]] = {literal(other_shapes(facts, config))}",
    ]
    source = [*comments("Source fixes, applied already:", recipe.at(Level.SOURCE), registry)]
    if sources:
        source.append(source_part(sources))
    else:
        source.append('def fix_source(folder: str, module: Any) -> None:\n    """No source is rewritten."""')
    plan = [
        "def main() -> int:",
        '    """Reproduce the repair; returns the exit code."""',
        "    plan = FixPlan(",
        f"        model_file={model_file!r},",
        f"        beside={relative_path(model_file, output)!r},",
        f"        class_name={spec.class_name!r},",
        f"        weights={os.path.abspath(spec.weights) if spec.weights else ''!r},",
        f"        seed={spec.seed!r},",
        "        config=CONFIG,",
        "        session=SESSION,",
        "        signature=SIGNATURE,",
        "        target=TARGET,",
        "        axes=AXES,",
        f"        float64={str(facts.get('float64', 'yes'))!r},",
        f"        mutated_buffers={mutated!r},",
        f"        fresh_each_call={fresh!r},",
        "        example_call=example_call,",
        "        sample_inputs=sample_inputs,",
        "        fix_source=fix_source,",
        "        fix_modules=fix_modules,",
        "        fix_program=fix_program,",
        "        fix_onnx=fix_onnx,",
        "        shapes=SHAPES,",
        f"        max_error={target.max_error if approximate_fixes(recipe, registry) else None!r},",
        *(["        wrap_noise=wrap_noise,", "        add_noise=add_noise,"] if noise else []),
        *(["        wrap_noise=wrap_noise,"] if seeded else []),
        "    )",
        "    return fix_main(plan, __file__)",
    ]
    body = [
        "\n".join(lines),
        "\n".join(settings),
        "\n".join(source),
        fix_function("fix_modules", "model", "The model with submodules replaced.", recipe.at(Level.MODULE)),
        fix_function("fix_program", "plan", "What is added to the capture and conversion.", recipe.at(Level.PROGRAM)),
        fix_function("fix_onnx", "proto", "The exported graph, changed.", recipe.at(Level.ONNX)),
        example_part(spec),
        samples_part(spec),
        *([noise_part(spec, noise)] if noise else []),
        *([seeded_part(spec)] if seeded else []),
        "\n".join(plan),
    ]
    entry = read_source_file("repair", "", "\n\n\n".join(body) + "\n")
    entry.summary = "the repair"
    named: dict[str, list[Any]] = {name: [f.params.get(PARAMETER) for f in bundled if f.strategy == name] for name in ours}
    operators = {name: {str(o) for listed in lists for o in listed} for name, lists in named.items() if all(isinstance(x, list) for x in lists)}
    made = pruned_bundle(entry, {name: registry[name].file for name in ours}, operators)
    text = made.text(header(spec, recipe, effect, conceded, version, noise_lines(facts)))
    return text + '\n\nif __name__ == "__main__":\n    raise SystemExit(main())\n'


def comments(title: str, fixes: tuple[Fix, ...], registry: Mapping[str, Strategy]) -> list[str]:
    """Comment lines that name fixes whose code is not in the script."""
    lines = [f"# {title}"] if fixes else []
    for fix in fixes:
        doc = (registry[fix.strategy].__doc__ or "").strip().partition("\n")[0]
        lines += [f"#   {fix}", f"#     {doc}"]
    return lines


def relative_path(path: str, folder: Path) -> str:
    """`path` from `folder`, or itself where there is no such way (another drive)."""
    try:
        return os.path.relpath(path, folder)
    except ValueError:
        return path
