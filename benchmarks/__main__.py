"""The comparisons of speed and memory in docs/benchmarks.md, one after the other, each in a process of its own.

    python -m benchmarks --gpu [--only opd_step] [--out FILE]
    python -m benchmarks [--only midtrain] …                                    # the same on the processor
    python -m benchmarks --real-model DIR --ifeval input_data.jsonl             # those of a chat model

One that fails does not stop the others.
"""

import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.scripts import script_parser

ON_GPU = [
    "opd_step --bf16 --steps 8",
    "opd_step --bf16 --steps 2 --rows 32 --shape qwen3-0.6b",
    "opd_step --bf16 --steps 2 --rows 32 --shape qwen3-0.6b --engine auto",  # vLLM where it is installed
    "midtrain --bf16 --steps 20",
    "midtrain --bf16 --steps 8 --shape qwen3-0.6b --rows 16 --window 1024",
    "divergence --positions 4096 --bf16",
    "divergence --positions 4096 --rounds 2",
]
ON_CPU = [
    "divergence --rounds 2",
    "opd_step --steps 6",
    "opd_step --steps 6 --bf16",
    "midtrain --steps 10",
    "midtrain --steps 10 --bf16",
]
OF_A_REAL_MODEL = [
    "precision --ifeval {ifeval} --items 64 --max-new-tokens 128",
    "midtrain --bf16 --steps 3 --rows 8 --window 512",
    "opd_step --bf16 --steps 3 --rows 16 --max-new-tokens 128 --engine auto",  # TRL's step takes 24 GB with 32 rows
    "lm_eval --ifeval {ifeval} --items 16 --engine vllm --dtype bfloat16 --end-loops",
]


def main(argv: list[str] | None = None) -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--gpu", action="store_true", help="the rows that are measured on a GPU")
    parser.add_argument("--only", metavar="NAME", help="benchmarks whose command contains this")
    parser.add_argument("--real-model", metavar="DIR", help="a chat model's folder, to measure that instead")
    parser.add_argument("--ifeval", metavar="FILE", help="of a real model: the public prompts")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write everything that is printed to this file, too")
    args = parser.parse_args(argv)
    if args.gpu and not torch.cuda.is_available():
        print("No GPU that torch can use. Without --gpu the processor is measured.", file=sys.stderr)
        return 1
    if args.real_model and not args.ifeval:
        parser.error("--real-model takes --ifeval too, the file of public prompts")
    lines = ON_GPU if args.gpu else ON_CPU
    if args.real_model:
        lines = [f"{line.format(ifeval=args.ifeval)} --model {args.real_model}" for line in OF_A_REAL_MODEL]
    commands = [f"benchmarks.{line}" for line in lines]
    failed = [command for command in commands if (args.only or "") in command and not _run(command, args.out)]
    for command in failed:
        print(f"Failed: python -m {command}", file=sys.stderr)
    return 1 if failed else 0


def _run(command: str, out: Path | None) -> bool:
    """Run it and show what it prints; return whether it succeeded."""
    title = f"\n## python -m {command}\n"
    print(title, flush=True)
    process = subprocess.Popen([sys.executable, "-m", *command.split()], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [title + "\n"]
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    if out:
        with out.open("a") as file:
            file.writelines(lines)
    return process.wait() == 0


if __name__ == "__main__":
    sys.exit(main())
