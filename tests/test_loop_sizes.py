"""Lists that grow in loops over a dynamic axis: their length is known after the loop, and they can be turned round."""

import importlib.util

import libcst as cst
import sympy
import torch

from autofix.capture_scopes import holds_for_usual_sizes
from autofix.surgery.source_control import rewrite_source
from autofix.surgery.source_passed import passed_sizes
from autofix.surgery.source_patch import functions_of
from autofix.watch import model_frame

TABLE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, cost):
        n, m = cost.shape
        above = cost[0]
        rows = [above]
        for i in range(1, n):
            row = [cost[i, 0] + above[0]]
            for j in range(1, m):
                row.append(cost[i, j] + torch.minimum(above[j], above[j - 1]))
            above = torch.stack(row)
            rows.append(above)
        table = torch.stack(rows)
        rows.reverse()
        return table, torch.stack(rows)
"""


def test_a_table_filled_row_by_row(tmp_path):
    file = tmp_path / "table.py"
    file.write_text(rewrite_source(TABLE, ["Model.forward"], [], sizes=True, arguments=[], zero_d=[]))
    spec = importlib.util.spec_from_file_location("table", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    auto = torch.export.Dim.DYNAMIC
    with torch.fx.experimental._config.patch(backed_size_oblivious=True):
        program = torch.export.export(
            module.Model(), (torch.randn(4, 3),), dynamic_shapes=({0: auto, 1: auto},), prefer_deferred_runtime_asserts_over_guards=True
        ).module()
    plain: dict = {}
    exec(TABLE, plain)
    for rows, columns in ((4, 3), (2, 5), (6, 2)):
        cost = torch.randn(rows, columns)
        for ours, theirs in zip(program(cost), plain["Model"]()(cost), strict=True):
            assert torch.equal(ours, theirs)


HELPERS = """
class Model:
    def places(self, w, h, scale):
        side = w // self.patch
        return float(side + 0.1) / 7, scale

    def grid(self, *, count=1):
        return self.places(count, 3, scale=2.0)

    def forward(self, img):
        b, c, w, h = img.shape
        return self.grid(count=w), self.places(4, h // 2, 2.0)
"""


def test_sizes_are_followed_into_the_functions_that_get_them():
    passed = passed_sizes(dict(functions_of(cst.parse_module(HELPERS))))
    assert passed == {"Model.places": {"w", "h"}, "Model.grid": {"count"}, "Model.forward": set()}
    rewritten = rewrite_source(HELPERS, ["Model.places"], control=False)
    assert "return real_of(real_number(side) + real_number(0.1)) / 7, scale" in rewritten


def test_products_of_usual_sizes_are_decided():
    a, b = sympy.symbols("a b", integer=True)
    assert holds_for_usual_sizes(a * b > 1, None) is True
    assert holds_for_usual_sizes(sympy.Eq(16 * a * b, 16), None) is False
    assert holds_for_usual_sizes(a * b > 8, None) is None and holds_for_usual_sizes(sympy.Eq(a, b), None) is None
    assert holds_for_usual_sizes(a * b > 1, {a}) is None


def test_places_in_installed_models_are_told():
    text = "def forward():\n    return inner()\n\n\ndef inner():\n    return frame({})\n"
    scope = {"__name__": "models.scan", "frame": model_frame}
    exec(compile(text, "/lib/site-packages/models/scan.py", "exec"), scope)
    assert scope["forward"]()[1:] == (False, "models.scan:2")
