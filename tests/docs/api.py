"""docs/api.md: the pieces that Python callers may rely on, with their signatures and their own words.

Read from the source, so that it is the same under every Python and needs nothing installed.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDTH = 100

PIECES = {
    "recovery.models.students": ["load_student", "save_student"],
    "recovery.models.adapters": ["Adapter"],
    "recovery.states": ["Documents", "Conversations", "Prompt", "Rollouts", "Mixture"],
    "recovery.engines": ["Sampling", "Generation", "Engine"],
    "recovery.engines.transformers": ["TransformersEngine"],
    "recovery.engines.vllm": ["VllmEngine"],
    "recovery.teachers": ["FrozenTeacher", "AdapterOffTeacher", "AdapterTeacher"],
    "recovery.teacher_router": ["RouterTeacher"],
    "recovery.signals": ["Labels", "TeacherSignal", "Blend"],
    "recovery.losses.objectives": ["CrossEntropy", "Divergence", "SampledGradient"],
    "recovery.recipes": ["Recipe", "recipe", "signal_of", "objective_of"],
    "recovery.train": ["Plan", "train"],
    "recovery.telemetry.step_record": ["StepRecord"],
    "recovery.lab.worlds.world": ["make_world", "own_world", "World"],
    "evals.subject": ["Subject"],
    "evals.suites.measure": ["measure"],
    "evals.results": ["Metric", "Item", "Result"],
    "db.engine": ["open_database"],
    "db.queries": ["Reader"],
}

HEAD = """# Python pieces

Written by `make docs` from the source; do not edit it by hand. What the rooms promise each other is in
[contracts.md](contracts.md); ten lines that use these pieces are in the [README](../README.md).
"""


def api() -> str:
    return "\n".join([HEAD, *(section(module, names) for module, names in PIECES.items())])


def section(module: str, names: list[str]) -> str:
    tree = parsed(module)
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    lines = [f"## {module}", "", *_words(tree)]
    for name in names:
        lines += ["```python", signature(defined[name]), "```", "", *_words(defined[name])]
    return "\n".join(lines)


def parsed(module: str) -> ast.Module:
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.FunctionDef):
        return _call(node.name, node.args, node.returns)
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    init = next((each for each in methods if each.name == "__init__"), None)
    fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
    head = _wrapped(node.name, _arguments(init.args) if init else fields)
    shown = [each for each in methods if not each.name.startswith("_")]
    return "\n".join([head, *(f"    .{_method(each)}" for each in shown)])


def _method(node: ast.FunctionDef) -> str:
    if any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list):
        return f"{node.name} -> {ast.unparse(node.returns)}" if node.returns else node.name
    return _call(node.name, node.args, node.returns)


def _call(name: str, arguments: ast.arguments, returns: ast.expr | None = None) -> str:
    shown = _wrapped(name, _arguments(arguments))
    return shown + (f" -> {ast.unparse(returns)}" if returns else "")


def _arguments(given: ast.arguments) -> list[str]:
    """As they are written in the source, without `self`."""
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults))
    defaults += given.defaults
    shown = [_argument(each, default) for each, default in zip(plain, defaults, strict=True)]
    if given.vararg or given.kwonlyargs:
        shown.append("*" + (_argument(given.vararg, None) if given.vararg else ""))
    shown += [_argument(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [each for each in shown if each not in ("self", "cls")]


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    return argument.arg + kind + (f" = {ast.unparse(default)}" if default else "")


def _wrapped(name: str, arguments: list[str]) -> str:
    """On one line, or one argument a line."""
    line = f"{name}({', '.join(arguments)})"
    return line if len(line) <= WIDTH else "\n".join([f"{name}(", *(f"    {each}," for each in arguments), ")"])


def _words(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> list[str]:
    said = ast.get_docstring(node)
    return [said, ""] if said else []
