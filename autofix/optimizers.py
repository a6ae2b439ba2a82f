"""Which of ONNX Runtime's own optimisers changes a result: found by switching them off in halves (delta debugging, Zeller 1999).

guilty_optimizers(path, settings, threads, is_right) -> names to switch off so that `is_right(session)` holds with all others on; None where
the file is right as it is, or wrong at level DISABLE_ALL too; an empty tuple where it takes that level.
The candidates are those that changed the graph, which ONNX Runtime tells in its log; so that few sessions are opened.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autofix.session import SessionSettings, open_session, session_options

if TYPE_CHECKING:
    from autofix.reference import ReferenceSet
    from autofix.target import Target

CHANGED = re.compile(r"GraphTransformer (\S+) modified: 1")
RULES = {
    "Level1_RuleBasedTransformer": (
        "EliminateIdentity",
        "EliminateSlice",
        "UnsqueezeElimination",
        "EliminateDropout",
        "ExpandElimination",
        "CastElimination",
        "CastChainElimination",
        "PreShapeNodeElimination",
        "NoopElimination",
        "DivMulFusion",
        "FuseReluClip",
        "GemmSumFusion",
        "GemmTransposeFusion",
        "NotWhereFusion",
        "ConvAddFusion",
        "ConvMulFusion",
        "ConvBNFusion",
        "PadFusion",
        "Pad_Fusion",
        "MatmulBNFusion",
        "MatMul_BatchNormalization_Fusion",
        "LabelEncoderFusion",
    ),
    "Level2_RuleBasedTransformer": ("ClipQuantFusion", "ReluQuantFusion"),
}
"""Optimisers that apply a list of rewrite rules, each of which can be switched off by itself. Names that a version does not know do nothing."""


@contextlib.contextmanager
def captured_log() -> Iterator[list[str]]:
    """What native code writes to stderr meanwhile; the list is filled at the end."""
    lines: list[str] = []
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def changing_optimizers(path: str, settings: SessionSettings, threads: int = 1) -> list[str]:
    """Names of the optimisers that change the graph of the file, in order, each once; also where the session can't be made after all."""
    import onnxruntime as ort

    options = session_options(settings, threads)
    options.log_severity_level = 1
    disabled = {"disabled_optimizers": list(settings.disabled_optimizers)} if settings.disabled_optimizers else {}
    with captured_log() as lines, contextlib.suppress(Exception):
        ort.InferenceSession(path, options, providers=list(settings.providers), **disabled)
    return list(dict.fromkeys(found[1] for line in lines if (found := CHANGED.search(line))))


def guilty_optimizers(path: str, settings: SessionSettings, threads: int, is_right: Callable[[Any], bool]) -> tuple[str, ...] | None:
    """See the module's docstring. `is_right` may raise, which counts as no; so does a session that can't be made."""

    def right(off: list[str], level: str = settings.level) -> bool:
        now = replace(settings, level=level, disabled_optimizers=(*settings.disabled_optimizers, *off))
        try:
            return is_right(open_session(path, now, threads))
        except Exception:  # the optimiser may make a graph that can't be opened or run
            return False

    if settings.level == "DISABLE_ALL" or right([]) or not right([], "DISABLE_ALL"):
        return None
    guilty = smallest_set(changing_optimizers(path, settings, threads), right)
    for name in [n for n in guilty if n in RULES]:
        rest = [n for n in guilty if n != name]

        def right_with(off: list[str], rest: list[str] = rest) -> bool:
            return right([*rest, *off])

        rules = smallest_set(list(RULES[name]), right_with)
        guilty = [*rest, *rules] if rules else guilty
    return tuple(guilty)


def smallest_set(names: list[str], works: Callable[[list[str]], bool]) -> list[str]:
    """A set of names for which `works` holds and which holds for none of its halves and for none without one name; empty where it does not
    hold for all of them."""
    if not names or not works(names):
        return []
    while len(names) > 1:
        middle = len(names) // 2
        half = next((h for h in (names[:middle], names[middle:]) if works(h)), None)
        if half is None:
            break
        names = half
    for name in list(names):
        fewer = [n for n in names if n != name]
        if fewer and works(fewer):
            names = fewer
    return names


def optimizer_facts(
    path: str,
    settings: SessionSettings,
    target: Target,
    signature: dict[str, Any] | None,
    one: ReferenceSet,
    sound: Callable[[Any], bool] | None = None,
) -> dict[str, str]:
    """Facts for a Diagnosis: `cause` "graph-optimization" and `optimizers`, comma-separated, where the file is right on the set with some
    optimisers off; empty where they have no part in it. sound: what to ask in place of parity on the set."""
    from autofix.verify import session_is_right

    def is_right(session: Any) -> bool:
        if sound is not None:
            return sound(session)
        assert signature is not None
        return session_is_right(session, one, signature, target)

    if "CPUExecutionProvider" not in settings.providers:
        return {}
    names = guilty_optimizers(path, settings, target.threads, is_right)
    if names is None:
        return {}
    return {"cause": "graph-optimization"} | ({"optimizers": ",".join(names)} if names else {})
