"""Linear algebra as compositions of operators that export; see the three files the table is joined from."""

from __future__ import annotations

from autofix.surgery.ops_linalg_eig import EIG_DECOMPOSITIONS, LINALG_OVERRIDES
from autofix.surgery.ops_linalg_lu import LU_DECOMPOSITIONS
from autofix.surgery.ops_linalg_qr import QR_DECOMPOSITIONS

__all__ = ["LINALG_DECOMPOSITIONS", "LINALG_OVERRIDES"]

LINALG_DECOMPOSITIONS = {**LU_DECOMPOSITIONS, **QR_DECOMPOSITIONS, **EIG_DECOMPOSITIONS}
"""ATen name -> torch function with the operator's schema."""
