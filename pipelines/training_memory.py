"""The bytes that training takes on each process, by part, from the shape of the model and the settings; a refusal of
what does not fit, before any model is loaded.

`benchmarks.training_memory` compares the first with what processes hold while they train."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import psutil
import torch

from pipelines.settings.defaults import MAX_STEP_TOKENS, SMALL_MODEL_PARAMETERS, choose_engine
from pipelines.settings.resolve import as_text
from pipelines.settings.schema import AUTO, Settings
from pipelines.synthetic.prompts import MAX_PROMPT_TOKENS
from recovery.chunked_loss import CHUNK_ELEMENTS, CHUNK_ELEMENTS_ON_GPU
from recovery.distributed import processes
from recovery.engines.transformers import MAX_PASS_TOKENS
from recovery.engines.vllm import gpu_memory_share
from recovery.errors import RecoverError
from recovery.models.adapters import adapter_size, base_of, same_model, saved_biases, saved_modules, saved_rank
from recovery.models.students import config_of, model_without_weights, window_of
from recovery.recipes import recipe

FULL = 4  # bytes of a number in float32; bfloat16 has half of them
# Tensors of positions × vocabulary that a loss with a teacher needs at once, in float32; of a Jensen–Shannon
# divergence, which compares both models with their mixture, the second.
CHUNK_TENSORS, MIXED_CHUNK_TENSORS = 8, 13
SAMPLING_BYTES = 28  # of each row and token of the vocabulary: logits, log-probs, probabilities, and their sum
ROWS_AT_ONCE = 256  # replies of one batch
GPU_COUNTS = (2, 4, 8, 16, 32, 64)  # that are tried where one does not fit
CACHE_SHARE = 4  # one batch's keys and values take at most this part of a GPU's memory

TrainingMemory = dict[str, dict[str, float]]  # phase → part → bytes


@dataclass(frozen=True)
class ModelShape:
    parameters: int
    layers: int
    hidden: int
    query: int  # numbers of all heads together
    key_value: int  # of the keys, and as many of the values
    inner: int  # of the feed-forward part; of all experts that a token uses
    vocabulary: int
    has_head_norms: bool  # queries and keys are normalised, as in Qwen3
    matrices: int  # weights of the layers that are multiplied, and so cast to bfloat16
    outside: int  # parameters of no layer, without the output head: the embedding and the last norm
    adapter_of_rank_1: int  # its parameters
    trained_beside: int = 0  # parameters of the base that a given adapter trains too: whole modules, biases

    @classmethod
    @cache
    def of(cls, reference: str) -> "ModelShape":
        """The shape of a folder or hub id; of an adapter, that of its base. No weights are read."""
        model = model_without_weights(reference)
        text = config_of(reference).get_text_config()
        head, kinds = model.get_output_embeddings(), set(getattr(model, "_no_split_modules", None) or ())
        layers = [module for module in model.modules() if type(module).__name__ in kinds]
        in_layers = {id(p): p for layer in layers for p in layer.parameters()}
        outside = [p for p in model.parameters() if id(p) not in in_layers and p is not head.weight]
        is_tied = head.weight is model.get_input_embeddings().weight
        of_layers = getattr(text, "per_layer_config", None) or [text]  # Gemma 4's layers differ
        width = max(getattr(layer, "head_dim", None) or 0 for layer in of_layers)
        width = width or text.hidden_size // max(1, text.num_attention_heads)
        key_value_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
        if experts := getattr(text, "num_experts_per_tok", None):
            inner = experts * (getattr(text, "moe_intermediate_size", None) or inner)
        return cls(
            parameters=sum(p.numel() for p in model.parameters()),
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            query=text.num_attention_heads * width,
            key_value=key_value_heads * width,
            inner=inner,
            vocabulary=len(head.weight),
            has_head_norms=any(name.endswith("q_norm") for name, _ in model.named_modules()),
            matrices=sum(p.numel() for p in in_layers.values() if p.dim() > 1),
            outside=sum(p.numel() for p in outside) + is_tied * head.weight.numel(),
            trained_beside=_trained_beside(reference, model),
            adapter_of_rank_1=adapter_size(model, rank=1),  # last, as it adds one to the model
        )

    @property
    def head(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def layer(self) -> int:
        return self.matrices // max(1, self.layers)

    @property
    def cache_bytes(self) -> int:
        """Keys and values of one token, in a student's precision."""
        return 2 * self.layers * self.key_value * FULL

    def adapter(self, rank: int) -> int:
        """Parameters of an adapter on every linear layer and expert, but not on the output head."""
        return rank * self.adapter_of_rank_1

    def activation_bytes(self, rank: int, *, bf16: bool) -> int:
        """What one layer keeps of one token for the backward pass.

        Counted from the operations of a layer with a gated feed-forward part, as in Llama and Qwen. Trained weights
        need what is multiplied with them; under an adapter only the adapter does. The residual stream and norms are
        in float32, the rest in bfloat16 under autocast, which casts the input of each linear layer separately."""
        heads, normed = self.query + self.key_value, self.has_head_norms
        if rank and bf16:
            kept = 18 * self.hidden + 6 * self.query + 4 * self.key_value + 8 * self.inner + 14 * rank
            return kept + 4 * heads * normed
        if rank:
            return 16 * self.hidden + (8 + 4 * normed) * heads + 16 * self.inner + 28 * rank
        if bf16:
            return 26 * self.hidden + (4 + 6 * normed) * heads + 8 * self.inner
        return 24 * self.hidden + (8 + 8 * normed) * heads + 16 * self.inner


@dataclass(frozen=True)
class Device:
    """What one process trains on: a GPU, or a processor that it shares with the others."""

    memory: float  # bytes
    processes: int = 1
    is_gpu: bool = True


@dataclass(frozen=True)
class Teacher:
    unshared: int = 0  # parameters that it shares with no other model
    head: int = 0  # weights of its output head

    @classmethod
    def of(cls, name: str, student: str, settings: Settings) -> "Teacher":
        """Its weights, unless they are those under the student's adapter. One that writes is a copy of its own."""
        shape, writes = ModelShape.of(name), recipe(settings.distill.recipe).continued is not None
        shared = settings.lora_rank and same_model(base_of(student) or student, base_of(name) or name)
        if writes or not shared:
            return cls(shape.parameters, shape.head)
        return cls(shape.adapter(settings.lora_rank) + shape.trained_beside if base_of(name) else 0, shape.head)


def training_memory(
    shape: ModelShape,
    settings: Settings,
    teachers: Sequence[Teacher],
    device: Device,
    replies: float = 0.0,
    *,
    uses_vllm: bool = False,
) -> TrainingMemory:
    """Bytes on each process. `teachers` are loaded together, beside the student. `replies`: bytes of what transformers
    generates at once; vLLM has a share of the GPU for its weights and its cache."""
    count, several = device.processes, device.processes > 1
    adapter = settings.lora_rank and shape.adapter(settings.lora_rank) + shape.trained_beside
    trained, frozen = adapter or shape.parameters, frozen_bytes(shape, settings)
    weight = frozen if adapter and not shape.trained_beside else FULL
    whole, teacher = weight * shape.parameters + FULL * adapter, frozen * sum(each.unshared for each in teachers)
    activations, output_head = _in_a_step(shape, settings, teachers, device)
    loaded = {"weights": whole / count, "teacher": teacher / count}
    always = {
        **loaded,
        "optimiser": 2 * FULL * trained / count,
        "vLLM": gpu_memory_share(shape.parameters, int(device.memory)) * device.memory * uses_vllm,
    }
    return {
        "while loading": loaded  # nothing is shared out before all of it is there
        | {"not yet shared out": (whole + teacher * (1 - 1 / count) + 2 * weight * shape.head) * several},
        "in a step": always
        | {
            "gradients": FULL * trained / count,
            "activations": activations,
            "output head": output_head,
            "layers of other GPUs": weight * (shape.outside + 2 * shape.layer) * several,
        },
        "between steps": always  # every process has the whole student, to generate, measure and save
        | {
            "all weights of the student": (whole + weight * shape.head) * several,
            "KV cache": replies * (not uses_vllm),
        },
    }


def _trained_beside(reference: str, model: Any) -> int:
    if base_of(reference) is None:
        return 0
    saved, biases = saved_modules(reference), saved_biases(reference)
    whole = (module for name, module in model.named_modules() if name.endswith(tuple(saved)))
    beside = [p for module in whole for p in module.parameters()]
    beside += [p for name, p in model.named_parameters() if biases and name.endswith("bias")]
    return sum(p.numel() for p in beside)


def frozen_bytes(shape: ModelShape, settings: Settings) -> int:
    """Of each weight that is not trained: `pipelines.model_loading.frozen_dtype`."""
    return FULL // 2 if settings.bf16 and shape.parameters > SMALL_MODEL_PARAMETERS else FULL


def sums(memory: TrainingMemory) -> dict[str, float]:
    return {phase: sum(parts.values()) for phase, parts in memory.items()}


def peak(memory: TrainingMemory) -> float:
    return max(sums(memory).values())


def tokens_at_once(settings: Settings, processes: int) -> int:
    """Tokens of the largest forward pass of a process: whole rows, of mid-training or of replies."""
    midtrain = settings.midtrain
    rows = MAX_STEP_TOKENS // midtrain.window if midtrain.rows == AUTO else midtrain.rows
    reply = MAX_PROMPT_TOKENS + settings.distill.max_new_tokens
    return max(
        min(max(1, settings.tokens_at_once // length), -(-rows // processes)) * length
        for rows, length in ((rows, midtrain.window), (settings.distill.rows, reply))
    )


def _in_a_step(
    shape: ModelShape, settings: Settings, teachers: Sequence[Teacher], device: Device
) -> tuple[float, float]:
    """Activations, and what the output head takes: at the loss or in the backward pass, whichever is more.

    Besides a layer's own, autocast keeps bfloat16 copies of weights: of trained ones until the loss is computed, of
    frozen ones in float32 as long as the layer is needed."""
    tokens, bf16_copy = tokens_at_once(settings, device.processes), FULL // 2 * settings.bf16
    frozen = FULL if shape.trained_beside else frozen_bytes(shape, settings)
    frozen_copy = bf16_copy if frozen == FULL else 0
    weight, copy = (frozen, frozen_copy) if settings.lora_rank else (FULL, bf16_copy)
    states = tokens * shape.hidden * FULL
    adapter = bf16_copy * shape.adapter(settings.lora_rank)
    layer_activations = tokens * shape.activation_bytes(settings.lora_rank, bf16=settings.bf16)
    kept = 3 * states  # the embedded tokens, and the last norm
    if settings.checkpointing:  # each layer's input; all else is computed again, one layer at a time
        kept += shape.layers * states
        at_loss = kept + (adapter or copy * shape.matrices)
        backward = kept + layer_activations + copy * shape.layer
    else:
        kept += shape.layers * layer_activations + copy * shape.matrices + adapter
        at_loss, backward = kept, kept
    teacher_heads = sum(each.head for each in teachers)
    gradient = 0 if settings.lora_rank else FULL * shape.head
    remaining = gradient + states * (2 + bool(teachers)) + frozen_copy * teacher_heads
    chunk = min(tokens * shape.vocabulary, CHUNK_ELEMENTS_ON_GPU if device.is_gpu else CHUNK_ELEMENTS)
    gathered = weight * shape.head + frozen * teacher_heads if device.processes > 1 else 0
    beta = recipe(settings.distill.recipe, **settings.distill.dials).beta
    tensors = MIXED_CHUNK_TENSORS if 0 < beta < 1 else CHUNK_TENSORS
    computing = remaining + FULL * tensors * chunk + copy * shape.head + gathered
    return max((float(at_loss), float(computing)), (float(backward), float(remaining)), key=sum)


def kv_cache(shape: ModelShape, settings: Settings, device: Device) -> float:
    """Of one batch of replies: while prompts are read, or when all are as long as they may be, whichever is more."""
    distill = settings.distill
    rows = min(ROWS_AT_ONCE, max(distill.rows, distill.probe_items if distill.probe_every else 0))
    prompts, replies = rows * MAX_PROMPT_TOKENS, rows * (MAX_PROMPT_TOKENS + distill.max_new_tokens)
    layer_token = FULL * (4 * shape.hidden + (3 + bool(settings.lora_rank)) * shape.inner)
    reading = min(prompts / device.processes, MAX_PASS_TOKENS) * (shape.cache_bytes + layer_token)
    batch = min(replies * shape.cache_bytes, device.memory / CACHE_SHARE)
    return max(reading, (batch + rows * shape.vocabulary * SAMPLING_BYTES) / device.processes)


def check_memory(student: str, settings: Settings, *teachers: Sequence[str], generates: bool = True) -> None:
    """Raise if training needs more memory than is free.

    Each sequence in `teachers` is a set of models that are loaded together, beside the student. The student
    `generates` replies while it is trained, unless it is only mid-trained. One that is an adapter is trained further,
    with its own rank."""
    settings = settings.model_copy(update={"lora_rank": saved_rank(student) or settings.lora_rank})
    is_gpu, shape, free = torch.cuda.is_available(), ModelShape.of(student), free_memory()
    device = Device(torch.cuda.mem_get_info()[1] if is_gpu else psutil.virtual_memory().total, processes(), is_gpu)

    def required(changed: Settings) -> float:
        replies = kv_cache(shape, changed, device) if device.is_gpu and generates else 0.0
        uses_vllm = device.is_gpu and choose_engine(changed.engine, shape.parameters) == "vllm"
        sets = [[Teacher.of(name, student, changed) for name in names] for names in teachers or [()]]
        memory = [training_memory(shape, changed, each, device, replies, uses_vllm=uses_vllm) for each in sets]
        return max(map(peak, memory)) * (1 if device.is_gpu else int(os.environ.get("LOCAL_WORLD_SIZE", 1)))

    if required(settings) <= free:
        return
    advice = fitting_changes(settings, cheaper_settings(settings), required, free)
    raise RecoverError(
        f"Training {student} ({parameter_count(shape.parameters)}) takes about "
        f"{gigabytes(required(settings))} of memory, and {gigabytes(free)} are free here: choose "
        f"{' or '.join([*advice, 'a smaller model'])}, or a machine with more free memory."
    )


@dataclass(frozen=True)
class GpuPlan:
    base: str
    name: str  # of the base, as the user knows it
    settings: Settings
    processes: int  # one on each GPU
    gpu_memory: float  # bytes

    @property
    def shape(self) -> ModelShape:
        return ModelShape.of(self.base)

    @property
    def engine(self) -> str:
        """What `auto` chooses where vLLM is installed."""
        if self.settings.engine != "auto":
            return self.settings.engine
        return "vllm" if self.processes == 1 and self.shape.parameters > SMALL_MODEL_PARAMETERS else "transformers"

    @cached_property
    def memory(self) -> TrainingMemory:
        settings, device = self.settings, Device(self.gpu_memory, self.processes)
        teachers, replies = [Teacher.of(self.base, self.base, settings)], kv_cache(self.shape, settings, device)
        return training_memory(self.shape, settings, teachers, device, replies, uses_vllm=self.engine == "vllm")

    @property
    def peak(self) -> float:
        return peak(self.memory)

    def check(self) -> None:
        """Raise if it does not fit, and say what would."""
        if self.peak <= self.gpu_memory:
            return
        changes = cheaper_settings(self.settings) | ({"engine": "transformers"} if self.engine == "vllm" else {})
        rows = self.settings.distill.rows, self.settings.midtrain.rows
        most = min(n for n in rows if n != "auto")  # more processes cannot share the rows of a step
        more = [
            replace(self, processes=count)
            for count in GPU_COUNTS
            if self.processes < count <= most and self.settings.engine in ("auto", "transformers")
        ]
        fitting = [plan for plan in more if plan.peak <= self.gpu_memory]
        advice = [f"--processes {plan.processes} ({gigabytes(plan.peak)})" for plan in fitting[:1]]
        advice += fitting_changes(self.settings, changes, lambda s: replace(self, settings=s).peak, self.gpu_memory)
        phases = sums(self.memory)
        raise RecoverError(
            f"A cycle of {self.name} takes {gigabytes(self.peak)} of each GPU {max(phases, key=phases.__getitem__)}, "
            f"and {gigabytes(self.gpu_memory)} are there: choose "
            f"{' or '.join([*advice, 'a smaller model'])}, or larger GPUs."
        )


def fitting_changes(
    settings: Settings, changes: dict[str, Any], required: Callable[[Settings], float], available: float
) -> list[str]:
    """Such as "--set checkpointing=true (48 GB)": each change that is enough alone, else all together if they are."""
    each = [{name: value} for name, value in changes.items()]
    for candidates in (each, [changes]):
        fitting = list[str]()
        for change in candidates:
            took = required(settings.model_copy(update=change))
            if took <= available:
                flags = " ".join(f"--set {name}={as_text(value)}" for name, value in change.items())
                fitting.append(f"{flags} ({gigabytes(took)})")
        if fitting:
            return fitting
    return []


def cheaper_settings(settings: Settings) -> dict[str, Any]:
    values = {
        "lora_rank": settings.lora_rank or 64,
        "checkpointing": True,
        "tokens_at_once": min(2048, settings.tokens_at_once),
    }
    return {name: value for name, value in values.items() if value != getattr(settings, name)}


def check_window(base: str, settings: Settings) -> None:
    context, window = window_of(base), settings.midtrain.window
    if not 2 <= window <= (context or window):
        limits = f"from 2 to {context}" if context else "at least 2"
        raise RecoverError(f"The setting midtrain.window must be {limits} tokens, not {window}.")


def free_memory() -> int:
    """Bytes of the GPU that this process may take, or of the machine if it has none."""
    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    return int(psutil.virtual_memory().available)


def gigabytes(count: float) -> str:
    return f"{count / 1e9:,.0f} GB" if count >= 1e11 else f"{count / 1e9:.3g} GB"


def parameter_count(count: int) -> str:
    return f"{count / 1e9:.2f} billion parameters" if count >= 1e8 else f"{count / 1e6:.1f} million parameters"
