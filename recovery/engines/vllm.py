"""Rollouts with vLLM in the same process: fast on a GPU; the student's weights are handed over after every update.

Adapters are swapped in through a folder, full weights are copied into the running model. vLLM uses no tokenizer, no
generation defaults and no prefix cache (which would hold prefixes from older weights).
"""

import io
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from recovery.engines import VLLM_LOOPS, Generation, Sampling, row_seeds
from recovery.engines.served_model import LORA_RANKS
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError, first_line
from recovery.hardware import has_bfloat16
from recovery.models import adapters
from recovery.models.students import Student
from recovery.progress import track

MIN_GPU_SHARE, CACHE_SHARE = 0.35, 0.15  # of the GPU's memory
MAX_IGNORED = 0.3  # of the effect of noise in an adapter: 16 bits round off 0.01 to 0.2 of it
MAX_BATCHED_TOKENS = 2048  # prompt log-probs hold this many rows of the vocabulary


class _ProgressBar(tqdm):
    """vLLM's progress bar: it draws nothing and reports instead."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options | {"disable": False, "file": io.StringIO()})
        self._update = track("replies", int(self.total or 0))

    def update(self, n: float | None = 1) -> bool | None:
        shown = super().update(n)
        self._update(int(self.n))
        return shown


class VllmEngine:
    def __init__(
        self,
        student: Student,
        *,
        cpu_cache_bytes: int | None = None,  # default: a sixth of the memory, at most 4 GiB
        eager: bool = False,  # capture no CUDA graphs: starts sooner, samples slower; always on a CPU
        dtype: torch.dtype | None = None,  # default: 16 bits on a GPU, as vLLM's adapters require, or with units for it
    ):
        self._vllm = _import_vllm()
        self._scratch = tempfile.TemporaryDirectory(prefix="recover-vllm-")
        self._chat = student.chat
        self._on_cpu, self._adapter = student.device.type == "cpu", None
        self._base, self._swaps = student.adapter_base, 0
        self._served: tuple[Student, int] | None = None
        dtype = dtype or _dtype(student)
        settings = {
            "dtype": str(dtype).removeprefix("torch."),
            "skip_tokenizer_init": True,
            "generation_config": "vllm",
            "enable_prefix_caching": False,
            "max_model_len": -1,  # as much as the model and the cache allow
            "use_tqdm_on_load": False,
        }
        if student.has_adapter:
            settings |= self._adapter_settings(student)
        else:  # a model of the student's shape; its weights are copied in later
            student.causal.config.save_pretrained(self._scratch.name)
            settings |= {"model": self._scratch.name, "load_format": "dummy"}
        settings |= _cpu_settings(student, cpu_cache_bytes) if self._on_cpu else _gpu_settings(student, eager)
        try:
            with torch.random.fork_rng():  # vLLM seeds the whole process
                self._llm = self._vllm.LLM(**settings)
        except Exception as error:  # vLLM also raises AssertionError
            raise RecoverError(
                f"vLLM cannot serve {student.path} ({first_line(error)}). Use the transformers engine."
            ) from error
        try:
            self.sync(student)
            self._check_agreement(student, 1e-3 if dtype == torch.float32 else 0.25)
        except Exception:  # another engine may need the memory
            self.close()
            raise

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        options: dict[str, Any] = {"temperature": sampling.temperature, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
        options |= {"max_tokens": sampling.max_new_tokens, "detokenize": False}
        options |= {"stop_token_ids": self._chat.reply_ends(sampling.of_turns), "ignore_eos": True}
        options |= {"logprobs": 0} if sampling.with_logprobs else {}
        if sampling.end_loops:
            options["repetition_detection"] = self._vllm.sampling_params.RepetitionDetectionParams(**VLLM_LOOPS)
        params = [self._vllm.SamplingParams(seed=seed, **options) for seed in row_seeds(sampling, len(prompts))]
        replies = [output.outputs[0] for output in self._run(prompts, params)]
        return [
            Generation(list(r.token_ids), _token_logprobs(r.logprobs, r.token_ids), r.finish_reason == "stop")
            for r in replies
        ]

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        params = self._vllm.SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=0.0, detokenize=False)
        outputs = self._run(sequences, [params] * len(sequences))
        return [
            _token_logprobs(r.prompt_logprobs[1:], tokens[1:]) for r, tokens in zip(outputs, sequences, strict=True)
        ]

    def continuation_logprobs(
        self, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
    ) -> list[list[float]]:
        assert self._served is not None
        # vLLM would read the context again for every continuation.
        return TransformersEngine(self._served[0]).continuation_logprobs(contexts, continuations)

    def sync(self, student: Student) -> None:
        if self._served is not None and self._served[0] is student and self._served[1] == student.updates:
            return
        if student.adapter_base != self._base:
            raise RecoverError(
                f"This vLLM engine was started for {self._base or 'full weights'}, not for a student on "
                f"{student.adapter_base or 'full weights'}. Start another engine."
            )
        if student.has_adapter:
            self._swap_adapter(student)
        else:
            self._copy_weights(student)
        self._served = (student, student.updates)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that it scores: vLLM always writes one token more."""
        return int(self._llm.model_config.max_model_len) - 1

    def close(self) -> None:
        """Free the memory. vLLM keeps some of its state per process, so this ends its other engines here too."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None
            self._scratch.cleanup()

    def _run(self, prompts: Sequence[list[int]], params: list[Any]) -> list[Any]:
        if self._llm is None:
            raise RecoverError("This vLLM engine was closed. Start another engine.")
        longest, limit = max((len(p) for p in prompts), default=0), self._llm.model_config.max_model_len
        if longest >= limit:
            raise RecoverError(
                f"A sequence of {longest} tokens does not fit into the {limit} that vLLM has memory for. "
                "Shorten it, or give vLLM more memory."
            )
        requests = [{"prompt_token_ids": list(p)} for p in prompts]
        try:
            return list(self._llm.generate(requests, params, use_tqdm=_ProgressBar, lora_request=self._adapter))
        except Exception as error:
            self.close()  # an interrupted call leaves requests behind that would block the next one
            raise RecoverError(f"vLLM failed ({first_line(error)}). Use the transformers engine.") from error

    def _adapter_settings(self, student: Student) -> dict[str, Any]:
        """Serve the clean base from its folder, with space for one adapter of the student's rank."""
        adapters.check_plain_lora(student.model)
        self._rank = adapters.rank(student.model)
        if self._rank > LORA_RANKS[-1]:
            raise RecoverError(
                f"The student's adapter has rank {self._rank} and vLLM serves at most {LORA_RANKS[-1]}. "
                "Merge it into full weights, or use the transformers engine."
            )
        layers = sorted(adapters.layer_kinds(student.model))
        if "lm_head" in layers:
            raise RecoverError(
                "vLLM computes wrong log-probs if an adapter changes the output head. Merge the adapter into full "
                "weights, or use the transformers engine."
            )
        name, revision = adapters.name_and_revision(self._base or "")
        max_rank = next(rank for rank in LORA_RANKS if rank >= self._rank)
        # If the layers are not named, vLLM puts an (empty) adapter on the head too, which breaks prompt log-probs.
        lora = {"enable_lora": True, "max_loras": 1, "max_lora_rank": max_rank, "lora_target_modules": layers}
        return {"model": name, "revision": revision, **lora}

    def _swap_adapter(self, student: Student) -> None:
        if adapters.rank(student.model) > self._rank:
            raise RecoverError(f"This vLLM engine was started for adapters of rank {self._rank}. Start another engine.")
        self._swaps += 1
        folder = Path(self._scratch.name) / str(self._swaps)
        folder.mkdir()
        adapters.save(student.model, folder)
        if self._adapter is not None:
            self._llm.llm_engine.remove_lora(self._adapter.lora_int_id)
        # Use a new number: vLLM goes on serving a loaded adapter even if its folder has changed.
        self._adapter = self._vllm.lora.request.LoRARequest(f"update-{self._swaps}", self._swaps, str(folder))
        self._llm.llm_engine.add_lora(self._adapter)
        shutil.rmtree(folder)

    @torch.no_grad()
    def _copy_weights(self, student: Student) -> None:
        from transformers.core_model_loading import revert_weight_conversion

        ours: dict[str, Tensor] = {name: p.detach() for name, p in student.causal.named_parameters()}
        weights = revert_weight_conversion(student.causal, ours)  # vLLM takes names as in checkpoints
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights.items())})
        if self._on_cpu:
            self._llm.apply_model(_pack_tied_head)

    def _check_agreement(self, student: Student, tolerance: float) -> None:
        """Check the log-probs once at the start: vLLM only warns of weights that it could not load."""
        probe, own = list(range(32, 64)), TransformersEngine(student)
        ours = own.logprobs([probe])[0]
        if not (gap := _gap(self.logprobs([probe])[0], ours)) < tolerance:
            raise RecoverError(
                f"vLLM's log-probs differ from the student's own by {gap:.2g} on average, so it does not serve the "
                "same model. Use the transformers engine."
            )
        if not student.has_adapter:
            return
        with adapters.noise(student.model):  # a new adapter changes nothing yet, also where vLLM ignores it
            self._swap_adapter(student)
            noisy = own.logprobs([probe])[0]
            ignored = _gap(self.logprobs([probe])[0], noisy) / _gap(ours, noisy)
        self._swap_adapter(student)
        if not ignored < MAX_IGNORED:
            raise RecoverError(
                f"vLLM ignores the adapter of {student.path}, or part of it. Use the transformers engine, or train "
                "full weights."
            )


def _gap(some: list[float], others: list[float]) -> float:
    return sum(abs(a - b) for a, b in zip(some, others, strict=True)) / len(some)


def gpu_memory_share(parameters: int, gpu_bytes: int) -> float:
    """Return the share of GPU memory for vLLM: its weights in 16 bits and its cache."""
    return min(0.9, max(MIN_GPU_SHARE, 2 * parameters / gpu_bytes + CACHE_SHARE))


def _dtype(student: Student) -> torch.dtype:
    stored: torch.dtype = next(student.causal.parameters()).dtype
    kind = student.device.type
    if stored != torch.float32 or kind not in ("cuda", "cpu"):
        return stored
    if has_bfloat16(kind):
        return torch.bfloat16
    return torch.float16 if kind == "cuda" else torch.float32


def _gpu_settings(student: Student, eager: bool) -> dict[str, Any]:
    share = gpu_memory_share(sum(p.numel() for p in student.causal.parameters()), torch.cuda.mem_get_info()[1])
    return {"gpu_memory_utilization": share, "enforce_eager": eager, "max_num_batched_tokens": MAX_BATCHED_TOKENS}


def _cpu_settings(student: Student, cache_bytes: int | None) -> dict[str, Any]:
    """Prefill prompts in one piece: on a CPU, vLLM cannot interrupt a seeded row within its prompt."""
    # With too few bytes for keys and values, rows wait for one another.
    cache_bytes = cache_bytes or min(2**32, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 6)
    positions = student.causal.config.get_text_config().max_position_embeddings
    prefill = {"enable_chunked_prefill": False, "max_num_batched_tokens": max(MAX_BATCHED_TOKENS, positions)}
    return {"kv_cache_memory_bytes": cache_bytes, "enforce_eager": True, **prefill}


def _token_logprobs(logprobs: Sequence[Any] | None, tokens: Sequence[int]) -> list[float]:
    """Empty where vLLM was not asked for them."""
    return [at[token].logprob for at, token in zip(logprobs, tokens, strict=True)] if logprobs is not None else []


def _pack_tied_head(model: Any) -> None:
    """Refresh the packed copy of a tied head, which vLLM uses on a CPU and does not update when weights reload."""
    for layer in model.modules():
        if hasattr(layer, "cpu_linear") and layer.weight.numel():
            layer.quant_method.process_weights_after_loading(layer)


def _import_vllm() -> Any:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # weights are handed over within this process
    # Log errors only, to stderr (stdout may be JSON), and send no usage statistics.
    for name, value in {"LOGGING_LEVEL": "ERROR", "LOGGING_STREAM": "ext://sys.stderr", "DO_NOT_TRACK": "1"}.items():
        os.environ.setdefault(f"VLLM_{name}", value)
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # it warns of every machine without Triton
    try:
        import vllm
        import vllm.lora.request
    except ImportError as error:
        raise RecoverError(
            f"vLLM cannot be imported ({error}). Install recover's extra `vllm`, or use the transformers engine."
        ) from error
    return vllm
