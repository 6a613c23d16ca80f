"""One sentence on instruction following: what mid-training lost, what came back, and which kinds are lost now."""

from collections import Counter
from collections.abc import Iterable, Iterator

from evals.results import Item, Result
from evals.stats.paired_comparison import paired_test

MAX_KINDS = 2


def behaviour_changes(clean: Result, damaged: Result | None, recovered: Result) -> str:
    """Without a final full stop; empty if no verdict on a prompt has changed."""
    now = paired_test(clean.passed_by_key(), recovered.passed_by_key())
    changed = len(now.lost) + len(now.gained)
    parts = [_came_back(clean, damaged, recovered)] if damaged else []
    if changed:
        kinds = _kinds(item for item in recovered.items if item.key in set(now.lost))
        most = f", most often {kinds}" if kinds else ""
        counts = f"{len(now.lost):,} lost{most}; {len(now.gained):,} gained"
        parts.append(f"{changed:,} of {now.n:,} verdicts differ from the clean model's ({counts})")
    return ", and ".join(filter(None, parts))


def _came_back(clean: Result, damaged: Result, recovered: Result) -> str:
    """On the prompts that all three answered."""
    before, after = damaged.passed_by_key(), recovered.passed_by_key()
    followed = [key for key, passed in clean.passed_by_key().items() if passed and key in before and key in after]
    lost = [key for key in followed if not before[key]]
    back = sum(after[key] for key in lost)
    if not lost:
        return ""
    return f"of {len(followed):,} prompts that the clean model followed, {len(lost):,} were lost and {back:,} came back"


def _kinds(lost: Iterable[Item]) -> str:
    """The kinds of instructions or checks that fail most often."""
    counts = Counter(kind for item in lost for kind in set(_failed(item)))
    return " and ".join(f"{kind} ({count})" for kind, count in counts.most_common(MAX_KINDS))


def _failed(item: Item) -> Iterator[str]:
    verdicts = item.verdicts
    checks = verdicts.get("checks") or zip(verdicts.get("instructions", ()), verdicts.get("strict", ()), strict=False)
    yield from (str(kind).partition(":")[0] for kind, passed in checks if not passed)
