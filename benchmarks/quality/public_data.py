"""Public tasks as lm-eval task files over local data: what a model knew before, in lm-eval's own prompts and metrics.

The data folder has one folder a task with JSON Lines in lm-eval's field names (`piqa/validation.jsonl`).
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MMLU = {
    "output_type": "multiple_choice",
    "doc_to_text": "The following is a multiple choice question about {{subject}}.\n\n{{question.strip()}}\n"
    "A. {{choices[0]}}\nB. {{choices[1]}}\nC. {{choices[2]}}\nD. {{choices[3]}}\nAnswer:",
    "doc_to_choice": ["A", "B", "C", "D"],
    "doc_to_target": "answer",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
# Per task: lm-eval's file, the split, and what differs from that file because the data is already processed.
TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "hellaswag": ("hellaswag/hellaswag.yaml", "validation", {"process_docs": None, "training_split": None}),
    "piqa": ("piqa/piqa.yaml", "validation", {"training_split": None}),
    "arc_easy": ("arc/arc_easy.yaml", "test", {"training_split": None, "validation_split": None}),
    "arc_challenge": ("arc/arc_easy.yaml", "test", {"training_split": None, "validation_split": None}),
    "winogrande": ("winogrande/default.yaml", "validation", {"training_split": None}),
    "lambada_openai": ("lambada/lambada_openai.yaml", "test", {}),
    "mmlu": ("", "test", MMLU),
    "truthfulqa_mc": ("truthfulqa/truthfulqa_mc1.yaml", "validation", {}),
}


def write_tasks(data: Path, folder: Path) -> list[Path]:
    """Write a YAML file (as JSON, which YAML includes) for every task that the data folder has."""
    spec = find_spec("lm_eval")
    assert spec
    assert spec.submodule_search_locations
    defaults = Path(spec.submodule_search_locations[0]) / "tasks"
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, (include, split, changes) in TASKS.items():
        rows = data / name / f"{split}.jsonl"
        if not rows.is_file():
            continue
        config: dict[str, Any] = {"include": str(defaults / include)} if include else {}
        config |= {"task": name, "dataset_path": "json", "dataset_name": None, f"{split}_split": split}
        config |= {"dataset_kwargs": {"data_files": {split: str(rows)}}, **changes}
        file = folder / f"{name}.yaml"
        file.write_text(json.dumps(config, indent=1))
        files.append(file)
    return files
