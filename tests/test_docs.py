"""The README's own files and commands work as printed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import autofix
from autofix.testing import checks_of, registry_for, run_check

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```", README, re.M | re.S)

WITHOUT_AUTOFIX = """
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "autofix":
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
sys.argv = ["fix.py"]
runpy.run_path("fix.py", run_name="__main__")
"""


def files():
    return {name: text for _, name, text in BLOCKS if name}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the README's files."""
    folder = tmp_path_factory.mktemp("readme")
    for name, text in files().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(command, folder):
    env = dict(os.environ, OMP_NUM_THREADS="1", XDG_DATA_HOME=str(folder), XDG_CACHE_HOME=str(folder), HOME=str(folder))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH", "")]))
    done = subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_readme_has_its_examples():
    assert set(files()) == {"model.py", "my_strategies/write_soft_clip.py"}


@pytest.mark.slow
def test_quick_start_and_python_api(place):
    assert "repaired: model.py" in run(["-m", "autofix.cli", "model.py", "--no-cache"], place)
    listed = re.findall(r"^\| `([\w.]+)`", README[README.index("leaves the folder") : README.index("Exit codes")], re.M)
    left = {p.name for p in (place / "model-autofix").iterdir()}
    assert {"model.onnx", "session.json", "fixlog.md", "fixlog.json", "fix.py"} <= left
    assert left <= {*listed, "report.html", "model.onnx.data"}
    (place / "model-autofix" / "model.onnx").unlink()
    assert "verified" in run(["-c", WITHOUT_AUTOFIX], place / "model-autofix") and (place / "model-autofix" / "model.onnx").exists()
    (api,) = [text for _, name, text in BLOCKS if "autofix.repair(" in text]
    script = place / "api.py"
    script.write_text(api)
    assert "['x']" in run([str(script)], place)


@pytest.mark.slow
def test_a_strategy_of_ones_own(warm, place, monkeypatch):
    folder = place / "my_strategies"
    registry = registry_for([folder], {"write_soft_clip"})
    for check in checks_of(registry["write_soft_clip"]):
        run_check(check, registry, [folder])
    model = sys.modules[type(registry["write_soft_clip"]).__module__].MODEL
    (place / "soft_clip.py").write_text(model)
    monkeypatch.chdir(place)
    settings = autofix.Settings(strategies=(folder,), use_cache=False, latency_seconds=0)
    found = autofix.repair("soft_clip.py", settings=settings, fork=True)
    assert found.ok and [f.strategy for f in found.winner.recipe.fixes] == ["write_soft_clip"]
    log = json.loads((place / "soft_clip-autofix" / "fixlog.json").read_text())
    assert log["effect"] == "exact" and "def soft_clip_plain" in (place / "soft_clip-autofix" / "fix.py").read_text()


def test_every_option_in_the_readme_exists():
    import click

    from autofix.cli import LAZY, cli

    repair = cli.commands["repair"]
    known = {o for p in repair.params if isinstance(p, click.Option) for o in p.opts}
    named = set(re.findall(r"`(--[\w-]+)", README)) | set(re.findall(r"^\| `(--[\w-]+)", README, re.M))
    assert named - known <= {"--help", "--symptoms"}
    assert known - named <= {"--no-policy", "--symptoms", "-o", "-q", "--input", "--seed"} | named
    for command in re.findall(r"`autofix (\w+)", README):
        assert command in {*cli.commands, *LAZY, "model", "net"}, command
