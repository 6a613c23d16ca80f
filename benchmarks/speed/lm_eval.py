"""Our measuring beside the `lm_eval` command: the same texts, the same numbers, and what each took.

    python -m benchmarks.speed.lm_eval --ifeval input_data.jsonl --items 100
    python -m benchmarks.speed.lm_eval --tasks gsm8k,mc1,mc2 --gsm8k folder --items 50 [--engine vllm]

Same checkpoint, float32, chat template applied, as many threads, the language detector seeded on both sides. The data
are the public files where given, else (`ifeval`, `mc1`, `mc2`) made from the lab. Where a reply differs, the place is
looked up where the two part, and how far apart the two likeliest tokens are there: a tie that rounding decides is said
to be one.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch

from benchmarks.common import table
from benchmarks.speed.lm_eval_command import Report, run_command, task_file
from evals.subject import Subject
from evals.suites.instruction_following import measure_ifeval, read_prompts
from recovery.engines import Engine, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE, instruction_tasks, own_world
from recovery.models.students import Student, load_student

ACCURACIES = ("prompt_level_strict_acc", "inst_level_strict_acc", "prompt_level_loose_acc", "inst_level_loose_acc")
TIE = 1e-3  # nats: what float32 sums in another order may move


@dataclass(frozen=True)
class Difference:
    key: str
    what: str  # "reply" or the name of a verdict
    gap: float | None = None  # between the two likeliest tokens where the replies part

    @property
    def is_a_tie(self) -> bool:
        return self.gap is not None and self.gap < TIE


@dataclass(frozen=True)
class Comparison:
    task: str
    items: int
    numbers: dict[str, tuple[float, float]]  # ours, theirs
    differences: list[Difference]
    seconds: tuple[float, float]
    cpu_seconds: tuple[float, float]  # theirs with the start of the command, some seconds

    @property
    def ratio(self) -> float:
        return self.seconds[1] / self.seconds[0]

    @property
    def cpu_ratio(self) -> float:
        return self.cpu_seconds[1] / self.cpu_seconds[0]


def main(arguments: list[str] | None = None) -> dict[str, Comparison]:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default=str(BASE))
    options.add_argument("--tasks", default="ifeval", help="of ifeval, gsm8k, mc1, mc2 (default: ifeval)")
    options.add_argument("--engine", choices=["transformers", "vllm"], default="transformers", help="ours")
    options.add_argument("--items", type=int, default=100)
    options.add_argument("--batch-size", type=int, default=1, help="the command's (its default: 1)")
    options.add_argument("--threads", type=int, default=os.cpu_count(), help="for both sides (default: all cores)")
    options.add_argument("--ifeval", type=Path, help="the public prompts (default: the lab's)")
    options.add_argument("--gsm8k", type=Path, help="a folder with train.jsonl and test.jsonl")
    asked = options.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    compared = {}
    with tempfile.TemporaryDirectory() as scratch:
        model = as_the_task_asks(asked.model, Path(scratch) / "model")
        student = load_student(model, frozen=True)
        with open_engine(student, asked.engine) as engine:
            for task in asked.tasks.split(","):
                folder = Path(scratch) / task
                folder.mkdir()
                compared[task] = TASKS[task](Side(student, engine, model, folder, asked))
                show(compared[task])
    return compared


@dataclass(frozen=True)
class Side:
    student: Student
    engine: Engine
    model: str
    folder: Path
    asked: Any

    @property
    def subject(self) -> Subject:
        return Subject(self.engine, self.student.chat)

    def command(self, task: Path) -> Report:
        asked = self.asked
        return run_command(
            self.model, task, self.folder, limit=asked.items, batch_size=asked.batch_size, threads=asked.threads
        )


@contextmanager
def open_engine(student: Student, name: str) -> Iterator[Engine]:
    if name == "transformers":
        yield TransformersEngine(student)
        return
    from recovery.engines.vllm import VllmEngine

    engine = VllmEngine(student, eager=True)
    try:
        yield engine
    finally:
        engine.close()


def as_the_task_asks(model: str, folder: Path) -> str:
    """A copy without the checkpoint's own `max_new_tokens`, which `hf` obeys over the limit that the task sets."""
    shutil.copytree(model, folder)
    file = folder / "generation_config.json"
    if file.is_file():
        config = json.loads(file.read_text())
        config.pop("max_new_tokens", None)
        file.write_text(json.dumps(config))
    return str(folder)


def ifeval(side: Side) -> Comparison:
    data = side.asked.ifeval or _lab_prompts(side.folder / "lab.jsonl", side.asked.items)
    report = side.command(task_file(side.folder, "ifeval/ifeval.yaml", {"train": data}))
    prompts = read_prompts(data)[: side.asked.items]
    cpu = time.process_time()
    result = measure_ifeval(side.subject, prompts, data="same")
    cpu_seconds = time.process_time() - cpu
    theirs = {str(sample["doc"]["key"]): sample for sample in report.samples}
    differences = []
    for item, prompt in zip(result.items, prompts, strict=True):
        sample, said = theirs[item.key], item.verdicts
        written = [all(said["strict"]), said["strict"], all(said["loose"]), said["loose"]]
        if item.answer != sample["resps"][0][0]:
            ids = side.student.chat.prompt(prompt.text)
            gap = gap_where_they_part(side.student, ids, item.answer, sample["resps"][0][0])
            differences.append(Difference(item.key, "reply", gap))
        else:
            pairs = zip(ACCURACIES, written, strict=True)
            differences += [Difference(item.key, name) for name, mine in pairs if mine != sample[name]]
    numbers = {name: (result.metrics[name].value, report.results[f"{name},none"]) for name in ACCURACIES}
    times = (result.seconds, report.generating), (cpu_seconds, report.cpu_seconds)
    return Comparison("ifeval", len(result.items), numbers, differences, *times)


def gsm8k(side: Side) -> Comparison:
    if not side.asked.gsm8k:
        raise SystemExit("gsm8k needs --gsm8k FOLDER, with train.jsonl and test.jsonl in it")
    rows = {split: side.asked.gsm8k / f"{split}.jsonl" for split in ("train", "test")}
    return _by_name(side, "gsm8k", task_file(side.folder, "gsm8k/gsm8k.yaml", rows))


def mc1(side: Side) -> Comparison:
    return _choices(side, "mc1")


def mc2(side: Side) -> Comparison:
    return _choices(side, "mc2")


TASKS: dict[str, Callable[[Side], Comparison]] = {"ifeval": ifeval, "gsm8k": gsm8k, "mc1": mc1, "mc2": mc2}


def _choices(side: Side, name: str) -> Comparison:
    rows = _lab_choices(side.folder / "choices.jsonl", side.asked.items)
    yaml = task_file(side.folder, f"truthfulqa/truthfulqa_{name}.yaml", {"validation": rows})
    return _by_name(side, name, yaml)


def _by_name(side: Side, name: str, yaml: Path) -> Comparison:
    from evals.harness.tasks import run_task

    report = side.command(yaml)
    cpu = time.process_time()
    [result] = run_task(side.subject, str(yaml), suite="retention", limit=side.asked.items)
    cpu_seconds = time.process_time() - cpu
    differences = [d for item in result.items for d in _unlike(side, item.key, item, report.samples)]
    numbers = {_in_full(metric): (m.value, report.results[_in_full(metric)]) for metric, m in result.metrics.items()}
    times = (result.seconds, report.generating), (cpu_seconds, report.cpu_seconds)
    return Comparison(name, len(result.items), numbers, differences, *times)


def _in_full(metric: str) -> str:
    return metric if "," in metric else f"{metric},none"


def _unlike(side: Side, key: str, item: Any, samples: list[dict[str, Any]]) -> list[Difference]:
    alike = [sample for sample in samples if sample["doc_hash"].startswith(key)]
    prompt, reply = _argument(alike[0], 0), alike[0]["resps"][0][0]
    if item.prompt != prompt:
        return [Difference(key, "prompt")]
    if isinstance(reply, str) and item.answer != reply:
        ids = list(side.student.chat.tokenizer.encode(prompt, add_special_tokens=False))
        return [Difference(key, "reply", gap_where_they_part(side.student, ids, item.answer, reply))]
    found = []
    for sample in alike:
        for metric in sample["metrics"]:
            mine = item.verdicts[metric if len(alike) == 1 else f"{metric},{sample['filter']}"]
            if abs(float(mine) - float(sample[metric])) > TIE:
                found.append(Difference(key, metric))
    return found


def _argument(sample: dict[str, Any], i: int) -> str:
    arguments = sample["arguments"]
    return str(arguments[0][i] if isinstance(arguments, list) else arguments["gen_args_0"][f"arg_{i}"])


def gap_where_they_part(student: Student, prompt: list[int], ours: str, theirs: str) -> float:
    """Nats between the two likeliest tokens at the first place where ours is no longer the beginning of theirs."""
    engine = TransformersEngine(student)
    room = len(student.chat.tokenizer.encode(ours, add_special_tokens=False)) + 64
    written = engine.generate([prompt], Sampling(room, temperature=0.0))[0].tokens
    same = next((k for k in range(len(written)) if not theirs.startswith(student.chat.text(written[: k + 1]))), 0)
    if len(theirs) < len(ours):  # theirs ended where ours went on
        same = min(same, next(k for k in range(len(written) + 1) if len(student.chat.text(written[:k])) >= len(theirs)))
    with torch.inference_mode():
        ids = torch.tensor([prompt + written[:same]], device=student.device)
        best = torch.log_softmax(student.model(ids).logits[0, -1].double(), -1).topk(2).values
    return float(best[0] - best[1])


def show(compared: Comparison) -> None:
    print(f"\n{compared.task}: {compared.items} items")
    for what, (ours, theirs), ratio in (
        ("seconds", compared.seconds, compared.ratio),
        ("CPU seconds", compared.cpu_seconds, compared.cpu_ratio),
    ):
        print(f"  {ours:.1f} and {theirs:.1f} {what}: {ratio:.2f} × as fast")
    rows = [[name, f"{mine:.6f}", f"{other:.6f}"] for name, (mine, other) in compared.numbers.items()]
    table(["", "recover", "lm_eval"], rows)
    print(f"{len(compared.differences)} differences")
    for d in compared.differences:
        print(f"  {d.key}: {d.what}" + ("" if d.gap is None else f", {d.gap:.2g} nats apart where they part"))


def _lab_prompts(file: Path, items: int) -> Path:
    file.write_text("\n".join(json.dumps(asdict(task)) for task in instruction_tasks(0, items, "heldout")))
    return file


def _lab_choices(file: Path, items: int) -> Path:
    """Questions on the base's own world in TruthfulQA's format: one right answer, for mc2 as a sentence too."""
    random, rows = Random(0), []
    for fact in random.sample(own_world().facts, items):
        alike = {f.value for f in own_world().facts if f.relation == fact.relation} - {fact.value}
        wrong = random.sample(sorted(alike), 3)
        short = {"choices": [fact.value, *wrong], "labels": [1, 0, 0, 0]}
        said = [*short["choices"], *(f"It is {value}." for value in short["choices"])]
        rows.append(
            {
                "question": fact.question(0).question,
                "mc1_targets": short,
                "mc2_targets": {"choices": said, "labels": short["labels"] * 2},
            }
        )
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


if __name__ == "__main__":
    main()
