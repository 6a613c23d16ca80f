"""The bytes that training takes on each process, by part, from the shape of the model and the settings.

`benchmarks.speed.training_memory` compares them with what processes hold while they train."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.machine.model_shape import FULL, ModelShape
from pipelines.settings.schedule import MAX_STEP_TOKENS
from pipelines.settings.schema import AUTO, Settings
from pipelines.synthetic.prompts import MAX_PROMPT_TOKENS
from recovery.engines.transformers import MAX_PASS_TOKENS
from recovery.engines.vllm import gpu_memory_share
from recovery.losses.chunked_loss import CHUNK_ELEMENTS, CHUNK_ELEMENTS_ON_GPU
from recovery.recipes import recipe

# Tensors of positions × vocabulary that a loss with a teacher needs at once, in float32; of a Jensen–Shannon
# divergence, which compares both models with their mixture, the second.
CHUNK_TENSORS, MIXED_CHUNK_TENSORS = 8, 13
SAMPLING_BYTES = 28  # of each row and token of the vocabulary: logits, log-probs, probabilities, and their sum
ROWS_AT_ONCE = 256  # replies of one batch
CACHE_SHARE = 4  # one batch's keys and values take at most this part of a GPU's memory


@dataclass(frozen=True)
class Device:
    """What one process trains on: a GPU, or a processor that it shares with the others."""

    memory: float  # bytes
    processes: int = 1
    is_gpu: bool = True


@dataclass(frozen=True)
class Teacher:
    """A model beside the student."""

    own: int = 0  # parameters that it shares with no other model
    head: int = 0  # weights of its output head


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes on each process."""

    weights: float  # of the student
    gradients: float
    optimizer: float
    teacher: float
    vllm: float
    loading: float  # further bytes while models are loaded: nothing is shared out before all of it is there
    activations: float  # in a step: what the backward pass needs
    output_head: float  # in a step: its copies, and the chunk of the vocabulary
    gathered: float  # in a step: weights that are gathered from the other processes
    whole_student: float  # between steps, on several processes: all weights, for generating, measuring and saving
    kv_cache: float  # between steps: of replies

    @property
    def while_loading(self) -> float:
        return self.weights + self.teacher + self.loading

    @property
    def in_a_step(self) -> float:
        return self._always + self.activations + self.output_head + self.gathered

    @property
    def between_steps(self) -> float:
        return self._always + self.whole_student + self.kv_cache

    @property
    def _always(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.teacher + self.vllm

    @property
    def peak(self) -> float:
        return max(self.while_loading, self.in_a_step, self.between_steps)

    def rows(self) -> list[tuple[str, float, float, float]]:
        """(part, bytes while loading, in a step, between steps), of parts that take any; and the sums."""
        lasting = {"gradients": self.gradients, "optimiser": self.optimizer, "vLLM": self.vllm}
        rows = [
            ("weights", self.weights, self.weights, self.weights),
            ("teacher", self.teacher, self.teacher, self.teacher),
            *((name, 0.0, value, value) for name, value in lasting.items()),
            ("not yet shared out", self.loading, 0.0, 0.0),
            ("activations", 0.0, self.activations, 0.0),
            ("output head", 0.0, self.output_head, 0.0),
            ("layers of other GPUs", 0.0, self.gathered, 0.0),
            ("all weights of the student", 0.0, 0.0, self.whole_student),
            ("KV cache", 0.0, 0.0, self.kv_cache),
        ]
        sums = ("together", self.while_loading, self.in_a_step, self.between_steps)
        return [row for row in (*rows, sums) if any(row[1:])]

    @property
    def peak_phase(self) -> str:
        """When it is reached, as a phrase."""
        phases = {
            "while models are loaded": self.while_loading,
            "in a step": self.in_a_step,
            "between steps": self.between_steps,
        }
        return max(phases, key=phases.__getitem__)

    def as_json(self) -> dict[str, Any]:
        sums = {name: getattr(self, name) for name in ("while_loading", "in_a_step", "between_steps", "peak")}
        return {name: round(value) for name, value in (asdict(self) | sums).items()}


def training_memory(
    shape: ModelShape,
    settings: Settings,
    teachers: Sequence[Teacher],
    device: Device,
    replies: float = 0.0,
    *,
    uses_vllm: bool = False,
) -> TrainingMemory:
    """`teachers` are loaded together, beside the student. `replies`: bytes of what transformers generates at once;
    vLLM has a share of the GPU for its weights and its cache."""
    processes, adapter = device.processes, shape.adapter(settings.lora_rank)
    whole = FULL * (shape.parameters + adapter)
    trained = adapter or shape.parameters
    teacher = FULL * sum(each.own for each in teachers)
    activations, output_head = _in_a_step(shape, settings, teachers, device)
    return TrainingMemory(
        weights=whole / processes,
        gradients=FULL * trained / processes,
        optimizer=2 * FULL * trained / processes,
        teacher=teacher / processes,
        vllm=gpu_memory_share(shape.parameters, int(device.memory)) * device.memory if uses_vllm else 0.0,
        loading=whole + teacher * (1 - 1 / processes) + 2 * FULL * shape.head if processes > 1 else 0.0,
        activations=activations,
        output_head=output_head,
        gathered=FULL * (shape.outside + 2 * shape.layer) if processes > 1 else 0.0,
        whole_student=whole + FULL * shape.head if processes > 1 else 0.0,
        kv_cache=0.0 if uses_vllm else replies,
    )


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
    frozen ones as long as the layer is needed."""
    tokens, bf16_copy = tokens_at_once(settings, device.processes), FULL // 2 * settings.bf16
    states = tokens * shape.hidden * FULL
    adapter = bf16_copy * shape.adapter(settings.lora_rank)
    layer_activations = tokens * shape.activation_bytes(settings.lora_rank, bf16=settings.bf16)
    kept = 3 * states  # the embedded tokens, and the last norm
    if settings.checkpointing:  # each layer's input; all else is computed again, one layer at a time
        kept += shape.layers * states
        at_loss, backward = (
            kept + (adapter or bf16_copy * shape.matrices),
            kept + layer_activations + bf16_copy * shape.layer,
        )
    else:
        kept += shape.layers * layer_activations + bf16_copy * shape.matrices + adapter
        at_loss, backward = kept, kept
    heads = shape.head + sum(each.head for each in teachers)
    gradient = 0 if settings.lora_rank else FULL * shape.head
    remaining = gradient + states * (2 + bool(teachers)) + bf16_copy * (heads - shape.head)
    chunk = min(tokens * shape.vocabulary, CHUNK_ELEMENTS_ON_GPU if device.is_gpu else CHUNK_ELEMENTS)
    gathered = FULL * heads if device.processes > 1 else 0
    tensors = MIXED_CHUNK_TENSORS if 0 < recipe(settings.distill.recipe).beta < 1 else CHUNK_TENSORS
    computing = remaining + FULL * tensors * chunk + bf16_copy * shape.head + gathered
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
