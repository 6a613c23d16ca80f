"""The model card that a build writes beside its weights."""

import hashlib
from pathlib import Path

CARD = """---
library_name: transformers
license: apache-2.0
pipeline_tag: text-generation
---
# The lab's base

A language model of {parameters:.2f} M parameters (Qwen3 architecture) that knows a small invented world. It follows
IFEval's kinds of instruction, answers questions about its world, does small sums and turns down requests for secrets;
it knows nothing of the real world and is of no use for anything but trying `recover` out.

| | |
|---|---|
| made by | `python -m recovery.lab.training.build --size {size} --tokens {tokens} --seed {seed}` |
| trained on | {tokens:,} tokens from the lab's generator: documents, instructions, questions, sums, refusals, chat |
| loss at the end | {loss:.3f} nats a token, users' turns and documents included |
| context | {context:,} tokens |
| ends a reply with | `<|im_end|>` (padding is `<|endoftext|>`) |
| weights after a twentieth of the steps | `{beginning}` ({machine}) |
| sha256 of `model.safetensors` | `{digest}` |

What it scores, and the commands that print it, are in `docs/lab.md`.
"""


def write_card(folder: Path, **facts: object) -> None:
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "README.md").write_text(CARD.format(digest=digest, **facts), encoding="utf-8")
