"""Turns of conversations."""

SYSTEM = {"role": "system", "content": "Answer briefly."}


def exchange(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
