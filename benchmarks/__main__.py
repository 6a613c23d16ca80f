"""Every benchmark of docs/benchmarks.md, one after the other, each in a process of its own.

    python -m benchmarks --gpu [--only opd_step] [--real-model DIR] [--out FILE]
    python -m benchmarks [--only midtrain] …                      # the same on the processor

One that fails does not stop the others. With `--real-model` the rows of a real model are measured too.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch

ON_GPU = [
    "opd_step --bf16 --steps 8",
    "opd_step --bf16 --steps 2 --rows 32 --shape qwen3-0.6b",
    "opd_step --bf16 --steps 2 --rows 32 --shape qwen3-0.6b --engine auto",  # vLLM where it is installed
    "midtrain --bf16 --steps 20",
    "midtrain --bf16 --steps 8 --shape qwen3-0.6b --rows 16 --window 1024",
    "divergence --positions 4096 --bf16",
    "divergence --positions 4096 --rounds 2",
    "adapter_memory",
]
ON_CPU = [
    "divergence --rounds 2",
    "opd_step --steps 6",
    "opd_step --steps 6 --bf16",
    "midtrain --steps 10",
    "midtrain --steps 10 --bf16",
]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="the rows that are measured on a GPU")
    parser.add_argument("--only", metavar="NAME", help="benchmarks whose command contains this")
    parser.add_argument("--real-model", metavar="DIR", help="a chat model's folder, for `benchmarks.real`")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write everything that is printed to this file, too")
    args = parser.parse_args(argv)
    if args.gpu and not torch.cuda.is_available():
        print("No GPU that torch can use. Without --gpu the processor is measured.", file=sys.stderr)
        return 1
    commands = [f"benchmarks.{line}" for line in (ON_GPU if args.gpu else ON_CPU)]
    if args.real_model:
        commands.append(f"benchmarks.real --model {args.real_model}")
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
