"""Generates docs/api.md: the classes and functions that Python callers may rely on, with signatures and docstrings.

The source is parsed, not imported, so the page is the same under every Python and needs nothing installed.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).parents[2]
WIDTH = 100  # longer signatures get one argument per line
Definition = ast.FunctionDef | ast.ClassDef

PUBLIC = {
    "recovery.models.students": ["load_student", "save_student"],
    "recovery.models.adapters": ["Adapter"],
    "recovery.states": [
        *("Documents", "FixedRows", "Prompt", "Rollouts", "Accepted", "TeacherContinuations"),
        "Mixture",
    ],
    "recovery.engines": ["Sampling", "Generation", "Engine"],
    "recovery.engines.transformers": ["TransformersEngine"],
    "recovery.engines.vllm": ["VllmEngine"],
    "recovery.engines.http": ["HttpEngine"],
    "recovery.teachers": [
        *("FrozenTeacher", "AdapterOffTeacher", "AdapterTeacher", "LiveTeacher", "EmaTeacher", "RouterTeacher"),
        "InContext",
    ],
    "recovery.server_teacher": ["ServerTeacher"],
    "recovery.signals": ["Labels", "TeacherSignal", "Blend"],
    "recovery.objectives": ["CrossEntropy", "Divergence", "SampledGradient"],
    "recovery.recipes": ["Recipe", "recipe", "signal_of", "objective_of"],
    "recovery.train": ["Plan", "train"],
    "recovery.telemetry": ["StepRecord"],
    "recovery.collapse": ["CleanReplies", "CollapseWatch"],
    "recovery.lab.worlds": ["make_world", "own_world", "World"],
    "evals.subject": ["Subject"],
    "evals.suites.suite_measurement": ["measure"],
    "evals.results": ["Metric", "Item", "Result"],
    "db.engine": ["open_database"],
    "db.queries": ["Reader"],
}

HEAD = """# Python API

`make docs` writes this page from the source; do not edit it by hand. What the packages promise each other is in
[contracts.md](contracts.md); a short example is in the [README](../README.md).
"""


def api() -> str:
    return "\n".join([HEAD, *(module_page(module, names) for module, names in PUBLIC.items())])


def module_page(module: str, names: list[str]) -> str:
    tree = parse_module(module)
    definitions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    lines = [f"## {module}", "", *_docstring(tree)]
    for name in names:
        lines += ["```python", signature(definitions[name], definitions), "```", "", *_docstring(definitions[name])]
    return "\n".join(lines)


def parse_module(module: str) -> ast.Module:
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def signature(node: Definition, of_module: Mapping[str, Definition]) -> str:
    if isinstance(node, ast.FunctionDef):
        return _call(node.name, node.args, node.returns)
    fields = [ast.unparse(member) for member in node.body if isinstance(member, ast.AnnAssign)]
    init = _init(node, {} if fields else of_module)
    head = _wrapped(node.name, _arguments(init.args) if init else fields)
    public = [method for method in _methods(node) if not method.name.startswith("_")]
    return "\n".join([head, *(indent(f".{_method(method)}", "    ") for method in public)])


def _init(node: Definition, of_module: Mapping[str, Definition]) -> ast.FunctionDef | None:
    """Its own, or else that of a base class in its module."""
    own = next((method for method in _methods(node) if method.name == "__init__"), None)
    bases = (of_module.get(ast.unparse(base)) for base in getattr(node, "bases", []))
    return own or next((init for base in bases if base and (init := _init(base, of_module))), None)


def _methods(node: Definition) -> list[ast.FunctionDef]:
    return [member for member in node.body if isinstance(member, ast.FunctionDef)]


def _method(node: ast.FunctionDef) -> str:
    if any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in node.decorator_list):
        return f"{node.name} -> {ast.unparse(node.returns)}" if node.returns else node.name
    return _call(node.name, node.args, node.returns)


def _call(name: str, arguments: ast.arguments, returns: ast.expr | None = None) -> str:
    return _wrapped(name, _arguments(arguments), f" -> {ast.unparse(returns)}" if returns else "")


def _arguments(arguments: ast.arguments) -> list[str]:
    """As they are written in the source, without `self` and `cls`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    texts = [_argument(argument, default) for argument, default in zip(positional, defaults, strict=True)]
    if arguments.vararg or arguments.kwonlyargs:
        texts.append("*" + (_argument(arguments.vararg, None) if arguments.vararg else ""))
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    texts += [_argument(argument, default) for argument, default in keywords]
    texts += [f"**{_argument(arguments.kwarg, None)}"] if arguments.kwarg else []
    return [text for text in texts if text not in ("self", "cls")]


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    return argument.arg + annotation + (f" = {ast.unparse(default)}" if default else "")


def _wrapped(name: str, arguments: list[str], returns: str = "") -> str:
    """On one line if it fits, else one argument per line."""
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), f"){returns}"])


def _docstring(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> list[str]:
    docstring = ast.get_docstring(node)
    return [docstring, ""] if docstring else []
