"""Conversations as people have them in files: the turns of a row, with their tools, for prompts and for training.

Read are Alpaca (`instruction`, `input`, `output`), ShareGPT (`conversations` with `from` and `value`), `messages` with
`role` and `content`, `prompt` with `completion`, `response` or `answer`, and preferences (`prompt`, `chosen`), of which
the chosen answer counts. A system prompt, earlier turns (`history`) and `tools` may stand beside the turns.

Turns stay as they are, with these exceptions, which chat templates need: roles have the usual names, content that is
missing beside a tool call is an empty text, parts of text are one text, and the arguments of a call are no JSON text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from evals.jsonl import whole_characters
from pipelines.documents.file_formats import (
    READERS,
    ROWS,
    TABLES,
    TEXT_FIELDS,
    Unreadable,
    files_under,
    has_content,
    rows_of,
)
from pipelines.log import log
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat, Message, learned

TURNS = ("messages", "conversations", "conversation")
QUESTIONS = ("prompt", "instruction", "question")
ANSWERS = ("completion", "output", "response", "answer", "chosen")
FIELDS = (*TURNS, *QUESTIONS, "input", *ANSWERS, "system", "system_prompt", "history", "tools", "functions")
ABOUT = ("readme", "license")  # of a folder of training files
LABELS, WRONG = ("label", "kto_tag"), ("false", "0", "0.0")  # of an answer by itself; tables write numbers or texts
MEDIA = ("images", "image", "videos", "video", "audios", "audio")
CALL_ROLES = ("function_call", "tool_call")  # of a turn whose text is a call
ROLES = dict.fromkeys(("gpt", "chatgpt", "bot", "model", *CALL_ROLES), "assistant") | {"human": "user"}
ROLES |= dict.fromkeys(("observation", "function", "tool_response"), "tool")
ROLES |= {"developer": "system"}  # OpenAI's newer name
ROLES |= {role: role for role in ("system", "user", "assistant", "tool")}
MAX_ROWS = 200_000  # that are read
FIRST = 20  # rows that show whether a file has conversations, or conversations that show what a template leaves out
GIVE_CONVERSATIONS = (
    "Give JSON, JSON lines or Parquet with messages, ShareGPT's conversations, or a prompt and its answer in each row; "
    "or CSV with prompts and answers."
)
INVALID = 'no valid "messages". Write a list of {"role": …, "content": …}.'


def turns_of(row: Mapping[str, Any]) -> list[Message]:
    """All turns of a row; none where it has no text to reply to. Raises ValueError, which says what is wrong."""
    turns = _first(row, TURNS)
    if turns is None:
        replies = _turns(_first(row, ANSWERS), "assistant")
        repeats_prompt = any(isinstance(turn, dict) and _role(turn.get("role")) == "user" for turn in replies)
        question = _turns(_question(row), "user")
        earlier = _history(row) if question else []
        turns = replies if repeats_prompt else [*earlier, *question, *replies]
    if not isinstance(turns, list):
        raise ValueError(INVALID)
    messages, system = [_turn(turn) for turn in turns], _first(row, ("system", "system_prompt"))
    if messages and messages[-1]["role"] == "user":  # preferences may have the answers beside the turns
        chosen = [_turn(turn) for turn in _turns(row.get("chosen"), "assistant")]
        messages = chosen if any(turn["role"] == "user" for turn in chosen) else messages + chosen
    if system is not None and messages and messages[0]["role"] != "system":
        messages.insert(0, _turn({"role": "system", "content": system}))
    return messages if any(message["role"] == "user" for message in messages) else []


def tools_of(row: Mapping[str, Any]) -> list[Any] | None:
    """The tools that may be called; a table has them as a JSON text."""
    tools, functions = row.get("tools"), row.get("functions")  # the second are OpenAI's of before
    if not has_content(tools) and isinstance(functions, list) and all(isinstance(schema, dict) for schema in functions):
        tools = [s if "function" in s else {"type": "function", "function": s} for s in functions]
    if isinstance(tools, str):
        with suppress(ValueError, RecursionError):
            tools = json.loads(tools.strip() or "null")
    if tools and not isinstance(tools, list):
        raise ValueError('no valid "tools". Write a list of their JSON schemas.')
    return tools or None


def said(message: Message) -> str:
    """What a turn says, to people and to filters: its text, and the calls of tools."""
    calls = [json.dumps(call.get("function", call), ensure_ascii=False) for call in message.get("tool_calls") or []]
    return "\n".join(text for text in (message["content"], *calls) if text)


def training_conversation(row: Any) -> dict[str, Any] | None:
    """A row as it is trained on, ending with an answer: `messages`, and `tools` if it has any. None: it has no answer.

    Raises ValueError for a row that is not to be learned, or has a part that cannot be read: without it the others
    would say something else."""
    messages = turns_of(_with_context(row)) if isinstance(row, dict) else []
    while messages and not learned(messages[-1]):
        messages.pop()
    if not any(message["role"] == "user" for message in messages):
        return None
    if is_wrong(row) or has_media(row):
        raise ValueError("an answer that is labelled as wrong, or pictures, videos or sounds.")
    return {"messages": messages} | ({"tools": tools} if (tools := tools_of(row)) else {})


def has_media(row: Mapping[str, Any]) -> bool:
    return _first(row, MEDIA) is not None


def is_wrong(row: Mapping[str, Any]) -> bool:
    """Whether the answer of a row is labelled as wrong."""
    labels = {name: str(row.get(name)).lower() for name in LABELS}
    if _first(row, TURNS) is not None and labels["label"] != "false":
        del labels["label"]  # beside turns a number is a class
    return "chosen" not in row and any(label in WRONG for label in labels.values())


def read_training_files(path: Path) -> list[dict[str, Any]]:
    """Those of a file, or of a folder whose files all have some; empty where a file has none."""
    if not path.is_dir():
        return read_training_file(path)
    readable = (file for file, reason in files_under(path) if not reason and file.suffix.lower() in READERS)
    files = [file for file in readable if file.stem.lower() not in ABOUT]
    conversations, refused = list[dict[str, Any]](), list[RecoverError]()
    for file in files if all(file.suffix.lower() in ROWS for file in files) else []:
        try:
            read = read_training_file(file)
        except RecoverError as error:  # as a document it would be taught as a text
            refused.append(error)
            continue
        if not read:
            return []
        conversations += read
    if refused:
        raise refused[0]
    return conversations


def read_training_file(path: Path) -> list[dict[str, Any]]:
    """The conversations of a file; empty if it has none, such as a file of documents.

    Raises RecoverError where its rows are of conversations, and no text, but none can be learned."""
    if not path.is_file() or path.suffix.lower() not in ROWS:
        return []
    conversations, left_out, are_texts, has_objects, unread = list[dict[str, Any]](), 0, False, False, list[str]()
    seen = 0  # rows that are not empty
    for number, row in enumerate(readable_rows(path, unread)):
        if not any(map(has_content, row.values() if isinstance(row, dict) else [row])):
            left_out += 1  # an empty row says nothing of the format
            continue
        if number >= MAX_ROWS:
            log.warning(f"Read only the first {MAX_ROWS:,} rows of {path}")
            break
        try:
            conversation, has_turns = training_conversation(row), _has_turns(row)
        except ValueError:
            conversation, has_turns = None, True
        if path.suffix.lower() in TABLES:  # where other fields are texts
            has_turns = _is_pair(row)
        conversations += [whole_characters(conversation)] if conversation else []
        left_out += conversation is None
        has_objects |= isinstance(row, dict)
        are_texts |= _has_text(row)
        seen += 1
        if seen <= FIRST and not conversations and not has_turns:
            return []  # it is none of the formats
    if left_out and not conversations and not are_texts:
        raise RecoverError(
            f"No row of {path} holds a conversation with an answer that can be learned. {GIVE_CONVERSATIONS}"
        )
    if unread and conversations:
        log.warning(f"Read only a part of {path}: {unread[0]}")
    elif unread and not has_objects:
        raise RecoverError(f"The file {path} cannot be read: {unread[0]}.")
    if left_out:
        log.warning(
            f"Left out {left_out:,} of {left_out + len(conversations):,} rows of {path}: they hold no conversation "
            "that can be read as a whole, or none to learn"
        )
    return conversations


def readable_rows(path: Path, unread: list[str]) -> Iterator[Any]:
    """The rows that can be read; why there are no more of them is added to `unread`."""
    try:
        yield from (row for row in rows_of(path) if row is not None)
    except Unreadable as error:
        unread.append(str(error))


def is_chat(row: Any) -> bool:
    """Whether a row is a conversation, and would be a text of its fields where it is read as a document."""
    try:
        return not _has_text(row) and training_conversation(row) is not None
    except ValueError:
        return False


def _has_text(row: Any) -> bool:
    return isinstance(row, dict) and any(has_content(row.get(name)) for name in TEXT_FIELDS)


def _has_turns(row: Any) -> bool:
    """Whether a row has a question, or the fields of a conversation with perhaps nothing in them."""
    fields = row.keys() if isinstance(row, dict) else set[str]()
    return bool(fields & {*TURNS, "chosen"}) or _is_pair(row) or (isinstance(row, dict) and bool(turns_of(row)))


def _is_pair(row: Any) -> bool:
    return isinstance(row, dict) and bool(row.keys() & set(QUESTIONS) and row.keys() & set(ANSWERS))


def warn_of_unread_tools(conversations: Iterable[Mapping[str, Any]], chat: Chat) -> None:
    with_tools = (c for c in conversations if c.get("tools") or any("tool_calls" in turn for turn in c["messages"]))
    left_out = set[str]()
    for conversation in islice(with_tools, FIRST):
        with suppress(RecoverError):
            left_out.update(chat.left_out(conversation["messages"], conversation.get("tools")))
    if left_out:
        log.warning(
            f"The chat template has no place for {' and '.join(sorted(left_out))}: the model reads none of them"
        )


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if has_content(row.get(name))), None)


def _question(row: Mapping[str, Any]) -> Any:
    question, context = _first(row, QUESTIONS), row.get("input")
    is_missing = not has_content(context) or isinstance(context, bool) or context != context  # NaN in a table
    if not isinstance(question, str) or is_missing:
        return question
    return f"{question}\n\n{context if isinstance(context, str) else json.dumps(context, ensure_ascii=False)}"


def _with_context(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its context, such as a passage, before its question; that of prompts is for teachers alone."""
    name = next((name for name in QUESTIONS if has_content(row.get(name))), None)
    context = row.get("context")
    if name is None or not has_content(context) or not isinstance(row[name], str) or _first(row, TURNS) is not None:
        return row
    texts = [context] if isinstance(context, str) else context
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError('no valid "context". Write a text.')
    return row | {name: "\n\n".join([*texts, row[name]])}


def _history(row: Mapping[str, Any]) -> list[Any]:
    """The turns before the question: pairs of texts, or turns as they are."""
    turns = list[Any]()
    history = row.get("history") or []
    for earlier in history if isinstance(history, list) else [history]:
        if isinstance(earlier, list) and len(earlier) == 2:
            turns += [{"role": "user", "content": earlier[0]}, {"role": "assistant", "content": earlier[1]}]
        else:
            turns.append(earlier)
    return turns


def _turns(value: Any, role: str) -> list[Any]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        return [{"role": role, "content": value}] if value.strip() else []
    return value if isinstance(value, list) else [value] if isinstance(value, dict) else []


def _turn(turn: Any) -> Message:
    if not isinstance(turn, dict):
        raise ValueError(INVALID)
    fields = {name: value for name, value in turn.items() if value is not None}  # tables fill them up with null
    role, text = fields.pop("from", None), fields.pop("value", None)
    role, text = fields.pop("role", role), fields.pop("content", text)
    calls = fields.pop("tool_calls", None) or fields.pop("function_call", None) or []
    if role in CALL_ROLES and isinstance(called := _from_json(text), dict | list):
        calls, text = called, ""
    if isinstance(text, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in text):
        text = "".join(part["text"] for part in text)
    if text is None and (calls or _role(role) == "tool"):
        text = ""
    if not isinstance(role, str) or not isinstance(text, str):
        raise ValueError(INVALID)
    message = {"role": _role(role), "content": text, **fields}
    calls = [_call(call) for call in (calls if isinstance(calls, list) else [calls])]
    return message | ({"tool_calls": calls} if calls else {})


def _role(role: Any) -> Any:
    """Its usual name; "User" is "user"."""
    return ROLES.get(role.lower(), role) if isinstance(role, str) else role


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise ValueError(INVALID)
    if isinstance(arguments := _from_json(function.get("arguments")), dict):
        function = {**function, "arguments": arguments}
    return {**call, "function": function} if "function" in call else {"type": "function", "function": function}


def _from_json(text: Any) -> Any:
    """What a JSON text says; None where it is none."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
