"""Documents as token ids in one flat file, kept by content: what the windows of a mid-training are cut from."""

import hashlib
import json
import mmap
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from recovery.models.chat import Chat

AT_ONCE = 64  # texts to the tokenizer in one call


class TokenFile(Sequence[Sequence[int]]):
    """Each item is one document's ids, a view of the file: nothing is read before it is looked at."""

    def __init__(self, file: Path):
        self.ends = array("Q")
        self.ends.frombytes(_ends(file).read_bytes())
        with file.open("rb") as raw:
            empty = not self.ends or self.ends[-1] == 0
            self.ids = memoryview(b"" if empty else mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ)).cast("I")

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self.ids[self.ends[place - 1] if place else 0 : self.ends[place]]

    @property
    def tokens(self) -> int:
        return self.ends[-1] if self.ends else 0


def tokenize_documents(texts: Iterable[str], tokenizer: Any, folder: Path, content: str) -> TokenFile:
    """The texts as ids of this tokenizer. `content` is the texts' hash: equal texts are not tokenized twice."""
    key = hashlib.sha256(f"{content}/{_spelling(tokenizer)}".encode()).hexdigest()[:24]
    file = folder / f"tokens-{key}.u32"
    if not (file.is_file() and _ends(file).is_file()):
        folder.mkdir(parents=True, exist_ok=True)
        aside, ends = file.with_suffix(".partial"), array("Q")
        with aside.open("wb") as raw:
            for ids in _tokenise(texts, tokenizer):
                raw.write(array("I", ids).tobytes())
                ends.append((ends[-1] if ends else 0) + len(ids))
        _ends(file).write_bytes(ends.tobytes())
        aside.replace(file)
    return TokenFile(file)


def count_tokens(texts: Iterable[str], tokenizer: Any) -> int:
    return sum(len(ids) for ids in _tokenise(texts, tokenizer))


def document_end(tokenizer: Any) -> int:
    """As pre-training ended them: with the pad where that is an end of text (Qwen), else with the EOS."""
    return int(tokenizer.pad_token_id if "endoftext" in (tokenizer.pad_token or "") else tokenizer.eos_token_id)


def before_document(chat: Chat) -> int:
    """What a document is read after: the BOS, where texts begin with it, else the end of another document."""
    begin = chat.document_bos
    return document_end(chat.tokenizer) if begin is None else begin


def _tokenise(texts: Iterable[str], tokenizer: Any) -> Iterator[list[int]]:
    waiting = iter(texts)
    while some := list(islice(waiting, AT_ONCE)):
        # A special token written inside a document stays the text it is.
        yield from tokenizer(some, add_special_tokens=False, split_special_tokens=True)["input_ids"]


def _spelling(tokenizer: Any) -> str:
    """What decides how this tokenizer spells a text."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    return fast.to_str() if fast is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)


def _ends(file: Path) -> Path:
    return file.with_suffix(".ends")
