"""What a recipe of distillation needs besides a student, and whether it was given that: prompts, contexts, checks.

Also whether several processes can train with it together.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evals.contamination import remove_contaminated
from evals.jsonl import Row, read_rows
from pipelines.documents.conversations import warn_of_unread_tools
from pipelines.settings.mix import parse_mix
from pipelines.settings.schema import Dials, Distill, Settings
from pipelines.settings.sources import parse_set_options
from pipelines.synthetic.prompts import ChatPrompt, parse_prompt, read_prompts, shuffled_contexts, with_context_of
from pipelines.teacher_choice import BASE, ByDomain, Itself, Router, Served, TeacherChoice
from recovery.distributed import processes as started_processes
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat
from recovery.models.students import window_of
from recovery.recipes import RECIPES, Recipe, recipe

CONTEXT_TEXTS = (".txt", ".md")  # files that are one context for all prompts
DISTILL_RECIPES = [name for name, r in RECIPES.items() if r.data != "documents"]
CONTEXTUAL_RECIPES = [name for name in DISTILL_RECIPES if RECIPES[name].context]


def as_distillation(settings: Settings) -> Settings:
    """The settings with which mid-training in context learns from its teacher: its recipe is that of a distillation."""
    overrides = {"recipe": settings.midtrain.recipe, "context_template": None, "temperature": 1.0}
    update = dict.fromkeys(Dials.model_fields) | overrides
    return settings.model_copy(update={"distill": settings.distill.model_copy(update=update)})


def chosen_recipe(settings: Distill) -> Recipe:
    """The recipe, with what the settings replace of it."""
    chosen = recipe(settings.recipe, **settings.dials)
    return replace(chosen, template=settings.context_template or chosen.template)


def check_mix(settings: Settings, mix: str | None, assignments: Iterable[str] = ()) -> None:
    """Raise if `--mix` or `--set` names what the recipe of mid-training does not read."""
    name, entries = settings.midtrain.recipe, parse_mix(mix) if mix is not None else {}
    assigned = parse_set_options(assignments).get("midtrain", {}).get("mix", {})
    entries |= parse_mix(assigned) if isinstance(assigned, str) else assigned
    unread = [entry for entry, share in entries.items() if share and entry != "earlier"]
    if recipe(name).context and unread:
        raise RecoverError(
            f"With the recipe {name}, only the entry earlier of the mix may be set, not {' or '.join(unread)}. The "
            "share of ordinary prompts is --set midtrain.ordinary_prompts=SHARE."
        )


def check_midtraining(name: str, docs: Path | None, conversations: Path | None) -> None:
    """Raise unless mid-training with this recipe reads what was given."""
    learned = "documents" if recipe(name).context else recipe(name).data
    if name != "midtrain" and (conversations if learned == "documents" else docs):
        raise RecoverError(f"The recipe {name} learns {learned} alone. Name nothing else, or choose midtrain.")


def check_recipes(settings: Settings) -> None:
    name, distill, mix = settings.midtrain.recipe, settings.distill, settings.midtrain.mix
    learns_labels = recipe(name).data in ("documents", "conversations") and not recipe(name).anchor
    if not learns_labels and recipe(name).context != ("passage",):
        raise RecoverError(
            f"Mid-training has no recipe {name!r}. Use midtrain or in-context, or for conversations alone sft or dft; "
            "`recover distill` takes the others."
        )
    if recipe(name).context and settings.midtrain.ordinary_prompts + mix.earlier >= 1:
        raise RecoverError(
            "The shares midtrain.ordinary_prompts and midtrain.mix.earlier leave nothing to the new documents. "
            "Together they must be below 1."
        )
    if distill.recipe not in DISTILL_RECIPES:
        raise RecoverError(
            f"Distillation has no recipe {distill.recipe!r}. Choose one of {', '.join(DISTILL_RECIPES)}."
        )
    chosen, rows = chosen_recipe(distill), distill.rows
    share, rollouts = chosen.on_policy_fraction, round(chosen.on_policy_fraction * rows)
    if 0 < share < 1 and rollouts in (0, rows):
        raise RecoverError(
            f"Of the {rows} rows of a step, the share distill.on_policy_fraction = {share:g} is {rollouts}. "
            "Set more rows (distill.rows), or a share that leaves rollouts and other rows."
        )
    if rollouts % chosen.group:
        raise RecoverError(
            f"The {rollouts} rollouts of a step of distill.rows = {rows} must be a multiple of the group size, "
            f"{chosen.group} (distill.group)."
        )
    if distill.temperature != 1 and chosen.data not in ("teacher", "start"):
        raise RecoverError(
            f"The recipe {distill.recipe} needs rollouts at temperature 1. Set distill.temperature for recipes "
            "with replies that are sampled beforehand, such as offpolicy-kl and self-sft."
        )


@dataclass(frozen=True)
class RecipeFiles:
    prompts: Path | None = None
    teacher_context: Path | None = None

    def check(self, settings: Distill, teacher: TeacherChoice[str]) -> None:
        name, chosen = settings.recipe, chosen_recipe(settings)
        if chosen.context and self.teacher_context is None:
            fields = " or ".join(f'"{field}"' for field in chosen.context)
            raise RecoverError(
                f"The recipe {name} shows its teacher a context. Name a file with --teacher-context: JSONL with "
                f"{fields} in every line, or one text for all prompts."
            )
        if self.teacher_context is not None and not chosen.context:
            raise RecoverError(
                f"The recipe {name} shows its teacher no context. Leave out --teacher-context, or choose one of "
                f"{', '.join(CONTEXTUAL_RECIPES)}."
            )
        if isinstance(teacher, Itself) and not (chosen.context and chosen.scores_with_teacher):
            raise RecoverError(
                f"The teacher {teacher.weights} is the student itself, from which the recipe {name} learns nothing. "
                "Name another model with --teacher."
            )
        if isinstance(teacher, Served) and not chosen.scores_with_teacher:
            raise RecoverError(
                f"In the recipe {name} the teacher writes and scores nothing, which --engine does on servers. Leave "
                "out --teacher."
            )
        if chosen.continued and isinstance(teacher, Router | ByDomain):
            raise RecoverError(f"In the recipe {name} one teacher writes. Name one checkpoint with --teacher.")
        if (chosen.data == "conversations" or (chosen.needs_checks and not chosen.context)) and self.prompts is None:
            needs = "checks or a short answer" if chosen.needs_checks else "replies"
            raise RecoverError(f"The recipe {name} learns from prompts with {needs}. Name a JSONL file with --prompts.")
        if settings.shuffle_contexts and (self.teacher_context is None or is_one_text(self.teacher_context)):
            raise RecoverError(
                "There are no contexts to shuffle (distill.shuffle_contexts). Give a JSONL file with --teacher-context."
            )

    def check_midtrain(self, name: str) -> None:
        """Raise unless mid-training with this recipe can use the file of contexts."""
        file = self.teacher_context
        if file is not None and (not recipe(name).context or is_one_text(file)):
            raise RecoverError(
                "In mid-training, --teacher-context is for --recipe in-context alone, and names a JSONL file with "
                '"question", "answer" and "passage" in each line.'
            )

    def read(
        self, settings: Distill, seed: int, written_by_base: Callable[[], Sequence[str]] = list
    ) -> list[ChatPrompt]:
        """The prompts with what the teacher reads. A JSONL file of contexts has prompts of its own, and those of
        `--prompts` are judged without a context beside it. Where no file has any, the base writes them."""
        file = self.teacher_context
        text = read_context_text(file) if file and is_one_text(file) else None
        with_contexts = contextual_prompts(read_rows(file), settings, seed) if file and text is None else []
        if self.prompts:
            others = read_prompts(self.prompts)
        else:
            others = [] if with_contexts else [ChatPrompt.of(prompt) for prompt in written_by_base()]
        return [*with_contexts, *(replace(prompt, context=text) for prompt in others)]


def is_one_text(file: Path) -> bool:
    return file.suffix.lower() in CONTEXT_TEXTS


def read_context_text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RecoverError(f"Cannot read the context {file}: {error}. Give a UTF-8 text file.") from error
    if not text:
        raise RecoverError(f"The file {file} is empty. Write what the teacher is to read.")
    return text


def contextual_prompts(rows: Iterable[Row], settings: Distill, seed: int) -> list[ChatPrompt]:
    """The prompts of rows, each with its context, or with another's (`distill.shuffle_contexts`)."""
    fields = recipe(settings.recipe).context
    prompts = [with_context_of(parse_prompt(row), fields, settings.recipe) for row in rows]
    return shuffled_contexts(prompts, seed) if settings.shuffle_contexts else prompts


def check_prompts(prompts: Sequence[ChatPrompt], settings: Distill, chat: Chat, model: str) -> None:
    """Raise if a recipe cannot use a prompt: no reply, no check of its own, turns that the chat template cannot render,
    or more than the model's window."""
    chosen, rules = chosen_recipe(settings), dict[str, Any]()  # which replies to a prompt are right
    window = window_of(model)
    for prompt in prompts:
        where = prompt.row[0] or "A prompt"
        if chosen.data == "conversations" and not prompt.reply:
            raise RecoverError(f'{where} has no reply. Add an "answer", or end its "messages" with the assistant.')
        # With a context, checks say whether it helps the teacher.
        check = prompt.check if chosen.needs_checks or prompt.context is not None else None
        if chosen.needs_checks:
            if check is None:
                raise RecoverError(
                    f'{where} has no "checks" and no short "answer", by which a rollout could be judged.'
                )
            if rules.setdefault(prompt.text, check.rule) != check.rule:
                raise RecoverError(f"{where} repeats a prompt with other checks. Leave one of the two out.")
        try:
            tokenized = prompt.tokenized(chat, chosen.template)
            if chosen.data == "conversations":
                prompt.as_conversation(chat)
        except RecoverError as error:
            raise RecoverError(f"{where}: {error}") from error
        if not window or chosen.data == "conversations":
            continue
        tokens, of_teacher = len(tokenized.tokens), len(tokenized.teacher_prompt or [])
        if max(tokens, of_teacher) + settings.max_new_tokens > window:
            whose, part = ("teacher's prompt", "context") if of_teacher > tokens else ("prompt", "prompt")
            raise RecoverError(
                f"{where}: the {whose} of {max(tokens, of_teacher):,} tokens and a reply of "
                f"{settings.max_new_tokens:,} exceed the model's window of {window:,}. Shorten the {part}, or lower "
                "distill.max_new_tokens."
            )
    warn_of_unread_tools(({"messages": [*p.messages, *p.reply], "tools": p.tools} for p in prompts), chat)


def check_domains(prompts: Sequence[ChatPrompt], teacher: TeacherChoice[str]) -> None:
    """Raise if the teacher of a domain would have nothing to teach."""
    named, taught = {prompt.domain for prompt in prompts}, teacher.by_domain if isinstance(teacher, ByDomain) else ()
    if idle := [domain for domain in taught if domain not in named]:
        raise RecoverError(
            f'No prompt is of the domain {idle[0]}. Write "domain": "{idle[0]}" into its rows of --prompts, or leave '
            "its teacher out."
        )


def check_contamination(prompts: Sequence[ChatPrompt], items: Sequence[str]) -> None:
    """Raise if a context shares 13 words in a row with an item that the student is measured by."""
    by_context = {prompt.context: prompt for prompt in prompts if prompt.context is not None}
    if overlaps := remove_contaminated(list(by_context), items).contaminated:
        context, shared = next(iter(overlaps.items()))
        where = by_context[context].row[0] or "The context"
        raise RecoverError(
            f"{where} shares words with an evaluation item ({shared!r}), so the student would be measured "
            "on what it was shown. Leave it out."
        )


def without_contaminated(prompts: Sequence[ChatPrompt], items: Sequence[str], run_length: int) -> list[ChatPrompt]:
    """The prompts of which neither the whole nor a turn of the user overlaps with an item."""
    texts = [text for prompt in prompts for text in prompt.questions]
    contaminated = remove_contaminated(texts, items, run_length).contaminated
    return [prompt for prompt in prompts if contaminated.keys().isdisjoint(prompt.questions)]


def check_processes(
    requested: int, settings: Settings, teacher: TeacherChoice[Any] = BASE, command: str = "cycle"
) -> None:
    """Raise unless the processes that there are, or that were requested, can train what the command trains."""
    started = started_processes()
    if (processes := max(requested, started)) == 1:
        return
    if started > 1 and requested not in (1, started):
        raise RecoverError(f"torchrun has started {started} processes. Leave out --processes.")
    if settings.engine not in ("auto", "transformers"):
        engine = "vllm" if settings.engine == "vllm" else "on servers"
        raise RecoverError(
            f"The engine {engine} generates for a single process. Leave out --processes, or choose --engine "
            "transformers."
        )
    if isinstance(teacher, Served):
        raise RecoverError(
            "A teacher on servers scores for a single process. Leave out --processes, or choose --teacher base."
        )
    if teacher == Itself("ema"):
        raise RecoverError(
            "The teacher ema is an average that a single process keeps. Leave out --processes, or choose --teacher "
            "live."
        )
    trained = {
        "distill.rows": command != "midtrain" or recipe(settings.midtrain.recipe).context,
        "midtrain.rows": command in ("midtrain", "cycle"),
    }
    for name, rows in (("distill.rows", settings.distill.rows), ("midtrain.rows", settings.midtrain.rows)):
        if trained[name] and rows != "auto" and rows < processes:  # "auto" has one for each
            raise RecoverError(
                f"A step has {rows} rows ({name}), too few for {processes} processes. Start at most {rows}, or set "
                "more rows."
            )
