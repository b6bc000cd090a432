"""The gateway with its counters taken out of its source, as it is loaded: what they cost is the difference.

`python -m tests.bench.wire.uncounted` is started in the place of `services.gateway`. What is taken out: additions to
`total`, calls of a gauge's `inc` and `dec` and of a histogram's `observe`, and the client connections' `_count`.
"""

import ast
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

COUNTED = "services.gateway"
CALLS = frozenset({"inc", "dec", "observe", "_count"})


class Uncounted(ast.NodeTransformer):
    """Statements that only count become `pass`."""

    def __init__(self) -> None:
        self.taken = 0

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        return self._pass(node) if isinstance(node.target, ast.Attribute) and node.target.attr == "total" else node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        call = node.value
        counts = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in CALLS
        return self._pass(node) if counts else node

    def _pass(self, node: ast.stmt) -> ast.stmt:
        self.taken += 1
        return ast.copy_location(ast.Pass(), node)


taken_out = Uncounted()


class UncountedLoader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:  # not the cached one, and not to be cached
        path = self.get_filename(fullname)
        tree = ast.fix_missing_locations(taken_out.visit(ast.parse(self.get_data(path), path)))
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code


class UncountedFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(COUNTED):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            loader: Loader = UncountedLoader(fullname, spec.loader.path)
            spec.loader = loader
        return spec


def main() -> None:
    sys.meta_path.insert(0, UncountedFinder())
    from services.gateway.__main__ import main as serve

    if not taken_out.taken:
        raise SystemExit("nothing was taken out: the gateway counts otherwise by now")
    serve()


if __name__ == "__main__":
    main()
