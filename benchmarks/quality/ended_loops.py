"""Does ending replies that loop change their verdicts? The same prompts, once with replies in full and once without.

    python -m benchmarks.quality.ended_loops --model DIR --ifeval input_data.jsonl [--items 541]

Greedy replies of small models often repeat one pattern to the limit. Evaluation ends such a reply after a few copies
and fills it up with more of them (`recovery.engines.loops`). This is exact where the full reply would not leave its
loop.
"""

import argparse
import time
from pathlib import Path

from benchmarks.common import table
from evals.results import Result
from evals.stats.paired_comparison import paired_test
from evals.subject import Subject
from evals.suites.instruction_following import PUBLIC_NEW_TOKENS, measure_ifeval, read_prompts
from pipelines.model_loading import load_frozen, open_engine


def main(argv: list[str] | None = None) -> dict[str, int]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model folder or a hub id")
    parser.add_argument("--ifeval", type=Path, required=True, help="the file of the prompts")
    parser.add_argument("--items", type=int, help="prompts (default: all)")
    parser.add_argument("--max-new-tokens", type=int, default=PUBLIC_NEW_TOKENS)
    parser.add_argument("--engine", default="auto", choices=["auto", "transformers", "vllm"])
    args = parser.parse_args(argv)
    student = load_frozen(args.model)
    prompts = read_prompts(args.ifeval)[: args.items]
    results, seconds = list[Result](), list[float]()
    with open_engine(student, args.engine) as engine:
        for end_loops in (False, True):
            start = time.perf_counter()
            subject = Subject(engine, student.chat, end_loops=end_loops)
            results.append(measure_ifeval(subject, prompts, data="both", max_new_tokens=args.max_new_tokens))
            seconds.append(time.perf_counter() - start)
    full, ended = results
    change = paired_test(full.passed_by_key(), ended.passed_by_key())
    pairs = list(zip(full.items, ended.items, strict=True))
    replies = sum(a.answer != b.answer for a, b in pairs)
    verdicts = sum(a.verdicts != b.verdicts for a, b in pairs)
    table(
        ["replies", "strict", "seconds"],
        [
            ["in full", f"{full.headline.value:.3f}", f"{seconds[0]:.0f}"],
            ["loops ended", f"{ended.headline.value:.3f}", f"{seconds[1]:.0f}"],
        ],
    )
    lost, gained = len(change.lost), len(change.gained)
    print(f"of {change.n} prompts: {replies} other replies, {verdicts} other verdicts, {lost} lost, {gained} gained")
    return {"replies": replies, "verdicts": verdicts, "lost": lost, "gained": gained}


if __name__ == "__main__":
    main()
