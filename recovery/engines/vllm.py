"""Rollouts from vLLM in this very process: fast on a GPU, and handed the student's weights after every update.

Adapters are swapped in through a folder, full weights are copied into the running model. vLLM reads the model and the
sampling settings from nothing but what is given here: no tokenizer, no generation defaults, no prefix kept from older
weights.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from recovery.engines import Generation, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models import adapters
from recovery.models.precision import has_bfloat16
from recovery.models.students import Student, split_revision

LEAST_SHARE, CACHE_SHARE = 0.35, 0.15  # of the card
TOKENS_AT_ONCE = 2048  # prompt log-probs hold this many rows of the vocabulary


class VllmEngine:
    def __init__(
        self,
        student: Student,
        *,
        gpu_share: float | None = None,  # of the whole card, which the trainer shares: vLLM's weights and its cache
        cpu_cache_bytes: int = 2**30,
        eager: bool = False,  # no graphs captured: starts sooner, writes slower; on a CPU always so
        dtype: torch.dtype | None = None,  # on a GPU 16 bits: its adapters and most of its attention know no other
    ):
        self._vllm = _import_vllm()
        self._scratch = tempfile.TemporaryDirectory(prefix="recover-vllm-")
        self._stop_at = sorted(student.chat.eos_ids)
        self._on_cpu, self._has_adapter, self._adapter = student.device.type == "cpu", student.has_adapter, None
        self._base, self._swaps = student.adapter_base, 0
        self._served: tuple[Student, int] | None = None
        dtype = dtype or _dtype(student)
        settings = {
            "dtype": str(dtype).removeprefix("torch."),
            "skip_tokenizer_init": True,
            "generation_config": "vllm",
            "enable_prefix_caching": False,
            "max_model_len": -1,  # what the model can and the cache holds
            "use_tqdm_on_load": False,
        }
        settings |= self._base_and_room(student) if student.has_adapter else self._shape_alone(student)
        settings |= (
            _on_a_cpu(student, cpu_cache_bytes) if self._on_cpu else _on_a_gpu(gpu_share or _share(student), eager)
        )
        try:
            with torch.random.fork_rng():  # vLLM seeds the whole process
                self._llm = self._vllm.LLM(**settings)
        except Exception as error:  # it asserts, too
            raise RecoverError(
                f"vLLM cannot serve {student.path} ({_first_line(error)}): use the transformers engine"
            ) from error
        self.sync(student)
        self._check_agreement(student, 1e-3 if dtype == torch.float32 else 0.25)

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        plain = {"temperature": sampling.temperature, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "logprobs": 0}
        until = {"max_tokens": sampling.max_new_tokens, "stop_token_ids": self._stop_at, "ignore_eos": True}
        # A seed a row: what is written depends neither on the company nor on what was written before.
        seeds = [random.Random(f"{sampling.seed}/{row}").getrandbits(62) for row in range(len(prompts))]
        params = [self._vllm.SamplingParams(seed=seed, detokenize=False, **plain, **until) for seed in seeds]
        replies = [output.outputs[0] for output in self._run(prompts, params)]
        return [
            Generation(list(r.token_ids), _of_tokens(r.logprobs, r.token_ids), r.finish_reason == "stop")
            for r in replies
        ]

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        only_read = self._vllm.SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=0.0, detokenize=False)
        read = self._run(sequences, [only_read] * len(sequences))
        return [_of_tokens(r.prompt_logprobs[1:], tokens[1:]) for r, tokens in zip(read, sequences, strict=True)]

    def sync(self, student: Student) -> None:
        if self._served is not None and self._served[0] is student and self._served[1] == student.updates:
            return
        if student.has_adapter != self._has_adapter or student.adapter_base != self._base:
            raise RecoverError(
                f"this vLLM engine was started for {self._base or 'full weights'}, not for a student on "
                f"{student.adapter_base or 'full weights'}; start another"
            )
        if student.has_adapter:
            self._swap_adapter(student)
        else:
            self._copy_weights(student)
        self._served = (student, student.updates)

    def close(self) -> None:
        """Give the memory back. vLLM keeps some of its state per process, so this ends any other engine here too."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None
            self._scratch.cleanup()

    def _run(self, prompts: Sequence[list[int]], params: list[Any]) -> list[Any]:
        if self._llm is None:
            raise RecoverError("this vLLM engine was closed; start another")
        longest, room = max((len(p) for p in prompts), default=0), self._llm.model_config.max_model_len
        if longest >= room:
            raise RecoverError(
                f"a sequence of {longest} tokens does not fit into the {room} that vLLM has room for: "
                "shorten it, or give vLLM more memory"
            )
        asked = [{"prompt_token_ids": list(p)} for p in prompts]
        try:
            return list(self._llm.generate(asked, params, use_tqdm=False, lora_request=self._adapter))
        except Exception as error:
            self.close()  # a run broken off leaves requests behind, which would spin for ever in the next
            raise RecoverError(f"vLLM failed ({_first_line(error)}): use the transformers engine") from error

    def _base_and_room(self, student: Student) -> dict[str, Any]:
        """The clean base from where it lies, with room for one adapter of the student's rank."""
        from vllm.config.lora import MaxLoRARanks

        self._rank, served = adapters.rank(student.model), sorted(get_args(MaxLoRARanks))
        if self._rank > served[-1]:
            raise RecoverError(
                f"the student's adapters have rank {self._rank} together and vLLM serves at most {served[-1]}: "
                "merge them into full weights, or use the transformers engine"
            )
        for name in student.model.active_adapters:
            adapters.plain(student.model, name)
        layers = sorted(adapters.touched(student.model))
        if "lm_head" in layers:
            raise RecoverError(
                "vLLM misreads log-probs where an adapter changes the output head: merge it into full weights, "
                "or use the transformers engine"
            )
        base = self._base or ""
        name, revision = (base, None) if Path(base).is_dir() else split_revision(base)
        room = next(rank for rank in served if rank >= self._rank)
        # Unless the layers are named, vLLM puts an (empty) adapter on the head too, which breaks prompt log-probs.
        lora = {"enable_lora": True, "max_loras": 1, "max_lora_rank": room, "lora_target_modules": layers}
        return {"model": name, "revision": revision, **lora}

    def _shape_alone(self, student: Student) -> dict[str, Any]:
        """The shape of the model; its weights come from the student."""
        student.causal.config.save_pretrained(self._scratch.name)
        return {"model": self._scratch.name, "load_format": "dummy"}

    def _swap_adapter(self, student: Student) -> None:
        if adapters.rank(student.model) > self._rank:
            raise RecoverError(f"this vLLM engine was started for adapters of rank {self._rank}; start another")
        self._swaps += 1
        folder = Path(self._scratch.name) / str(self._swaps)
        folder.mkdir()
        adapters.save(student.model, folder)
        if self._adapter is not None:
            self._llm.llm_engine.remove_lora(self._adapter.lora_int_id)
        # A number never used before: vLLM keeps serving an adapter it knows, whatever its folder holds now.
        self._adapter = self._vllm.lora.request.LoRARequest(f"update-{self._swaps}", self._swaps, str(folder))
        self._llm.llm_engine.add_lora(self._adapter)
        shutil.rmtree(folder)

    @torch.no_grad()
    def _copy_weights(self, student: Student) -> None:
        from transformers.core_model_loading import revert_weight_conversion

        ours: dict[str, Tensor] = {name: p.detach() for name, p in student.causal.named_parameters()}
        as_stored = revert_weight_conversion(student.causal, ours)  # vLLM reads checkpoints, not modules
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(as_stored.items())})
        if self._on_cpu:
            self._llm.apply_model(_pack_tied_head)

    def _check_agreement(self, student: Student, tolerance: float) -> None:
        """Once, at the start: vLLM only warns of weights it could not place, and then writes with the wrong ones."""
        probe = list(range(32, 64))
        pairs = zip(self.logprobs([probe])[0], TransformersEngine(student).logprobs([probe])[0], strict=True)
        gaps = [abs(theirs - ours) for theirs, ours in pairs]
        if not sum(gaps) / len(gaps) < tolerance:
            raise RecoverError(
                f"vLLM's log-probs are {sum(gaps) / len(gaps):.2g} away from the student's own, so it does not "
                "serve the same model; use the transformers engine"
            )


def share_of_card(parameters: int, card: int) -> float:
    """What vLLM is given: its weights in 16 bits, and a cache beside them."""
    return min(0.9, max(LEAST_SHARE, 2 * parameters / card + CACHE_SHARE))


def _share(student: Student) -> float:
    return share_of_card(sum(p.numel() for p in student.causal.parameters()), torch.cuda.mem_get_info()[1])


def _dtype(student: Student) -> torch.dtype:
    stored: torch.dtype = next(student.causal.parameters()).dtype
    if student.device.type != "cuda" or stored != torch.float32:
        return stored
    return torch.bfloat16 if has_bfloat16("cuda") else torch.float16


def _on_a_gpu(share: float, eager: bool) -> dict[str, Any]:
    return {"gpu_memory_utilization": share, "enforce_eager": eager, "max_num_batched_tokens": TOKENS_AT_ONCE}


def _on_a_cpu(student: Student, cache_bytes: int) -> dict[str, Any]:
    """Prompts are read whole: there, a seeded row cannot stop half-way through its prompt."""
    positions = student.causal.config.get_text_config().max_position_embeddings
    whole = {"enable_chunked_prefill": False, "max_num_batched_tokens": max(TOKENS_AT_ONCE, positions)}
    return {"kv_cache_memory_bytes": cache_bytes, "enforce_eager": True, **whole}


def _of_tokens(logprobs: Sequence[Any], tokens: Sequence[int]) -> list[float]:
    return [at[token].logprob for at, token in zip(logprobs, tokens, strict=True)]


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _pack_tied_head(model: Any) -> None:
    """On a CPU vLLM multiplies by packed copies; a head tied to the embedding has one that a reload passes over."""
    for layer in model.modules():
        if hasattr(layer, "cpu_linear") and layer.weight.numel():
            layer.quant_method.process_weights_after_loading(layer)


def _import_vllm() -> Any:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # weights are handed over inside this process
    # Quiet, never on standard output (which may be promised to JSON), and nothing told to anyone.
    for name, value in {"LOGGING_LEVEL": "ERROR", "LOGGING_STREAM": "ext://sys.stderr", "DO_NOT_TRACK": "1"}.items():
        os.environ.setdefault(f"VLLM_{name}", value)
    try:
        import vllm
        import vllm.lora.request
    except ImportError as error:
        raise RecoverError(
            f"vLLM cannot be imported ({error}): pip install 'recover[vllm]', or use the transformers engine"
        ) from error
    return vllm
