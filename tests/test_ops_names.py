"""What the strategies name is what the tables hold."""

import ast
from pathlib import Path

import pytest
import torch

from autofix.surgery.ops_bits import BIT_DECOMPOSITIONS
from autofix.surgery.ops_grid import GRID_DECOMPOSITIONS
from autofix.surgery.ops_linalg import LINALG_DECOMPOSITIONS
from autofix.surgery.ops_losses import LOSS_DECOMPOSITIONS
from autofix.surgery.ops_moves import MOVE_DECOMPOSITIONS
from autofix.surgery.ops_nan import NAN_TRANSLATIONS
from autofix.surgery.ops_norms import NORM_DECOMPOSITIONS
from autofix.surgery.ops_numerics import NUMERIC_DECOMPOSITIONS
from autofix.surgery.ops_order import ORDER_DECOMPOSITIONS
from autofix.surgery.ops_pool import AVERAGE_DECOMPOSITIONS, POOL_DECOMPOSITIONS
from autofix.surgery.ops_pool_fractional import FRACTIONAL_DECOMPOSITIONS
from autofix.surgery.ops_reductions import REDUCTION_DECOMPOSITIONS
from autofix.surgery.ops_resize_table import resize_table
from autofix.surgery.ops_scan import PRODUCT_DECOMPOSITIONS, SCAN_DECOMPOSITIONS
from autofix.surgery.ops_scatter import SCATTER_DECOMPOSITIONS
from autofix.surgery.ops_special import ERROR_FUNCTIONS
from autofix.surgery.ops_special_bessel import BESSEL_FUNCTIONS
from autofix.surgery.ops_special_gamma import GAMMA_FUNCTIONS
from autofix.surgery.ops_special_polynomials import POLYNOMIALS

TABLES = {
    "decompose_linalg": LINALG_DECOMPOSITIONS,
    "decompose_special": {**ERROR_FUNCTIONS, **GAMMA_FUNCTIONS, **BESSEL_FUNCTIONS, **POLYNOMIALS},
    "decompose_order": {**ORDER_DECOMPOSITIONS, **SCAN_DECOMPOSITIONS},
    "decompose_scatter": SCATTER_DECOMPOSITIONS,
    "decompose_resize": {**POOL_DECOMPOSITIONS, **resize_table(), **GRID_DECOMPOSITIONS, **FRACTIONAL_DECOMPOSITIONS},
    "decompose_bits": BIT_DECOMPOSITIONS,
    "careful_numerics": {
        **NUMERIC_DECOMPOSITIONS,
        **REDUCTION_DECOMPOSITIONS,
        **AVERAGE_DECOMPOSITIONS,
        **PRODUCT_DECOMPOSITIONS,
        **MOVE_DECOMPOSITIONS,
        **LOSS_DECOMPOSITIONS,
        **NORM_DECOMPOSITIONS,
        **NAN_TRANSLATIONS,
    },
}


def listed(name):
    """The tuples of operator names at the top of a strategy's file."""
    root = Path(__file__).parent.parent
    kept = root / "autofix/surgery/ops_suspects.py" if name == "careful_numerics" else root / "strategies/program" / f"{name}.py"
    text = kept.read_text()
    body = [n for n in ast.parse(text).body if isinstance(n, ast.Assign) and n.targets[0].id.isupper()]
    scope = {}
    for node in body:
        exec(compile(ast.Module([node], []), name, "exec"), scope)
    return {n for key in ("OPERATORS", "FAULTY", "DELICATE") for n in scope.get(key, ())}


@pytest.mark.parametrize("name", TABLES)
def test_names_are_known_both_ways(name):
    names = listed(name)
    known = {n for n in TABLES[name] if n.split(".")[1] in dir(torch.ops.aten)}
    exists = {n for n in names if hasattr(getattr(torch.ops.aten, n.split(".")[1], None), n.split(".")[2])}
    assert exists <= set(TABLES[name])
    assert known - names == set()
