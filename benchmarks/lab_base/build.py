"""Train the base from scratch: `python -m benchmarks.lab_base.build --out DIR`. A stopped build can be resumed."""

import argparse
import hashlib
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from benchmarks.lab_base.curriculum import BATCH_TOKENS, END, STOP, Batch, batches, texts, train_tokenizer
from recovery.errors import RecoverError
from recovery.hardware import has_bfloat16
from recovery.lab.worlds import own_world

CONTEXT = 4096
VOCABULARY, HEADS, KEY_HEADS = 2048, 8, 4
WARM_UP = 0.02  # share of the steps
SAVE_EVERY = 200
TWENTIETH = 20  # the card names a digest of the weights after 1 / 20 of the steps
SUITES = {"behaviour": "lab", "retention": "lab"}


@dataclass(frozen=True)
class Size:
    hidden: int
    layers: int
    head_width: int
    inner: int
    tokens: int  # to train on


SIZES = {
    "small": Size(256, 4, 32, 768, 30_000_000),
    "large": Size(384, 8, 48, 1152, 120_000_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--size", choices=SIZES, default="small", help="how large a model (default: small)")
    parser.add_argument("--tokens", type=int, help="how much to train on (default: what the size needs)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--threads", type=int, default=2, help="bit-identical results need the same number (default: 2)"
    )
    parser.add_argument("--stop-after", type=int, help="stop after so many steps, as if interrupted")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    build(args.out, args.size, args.tokens or SIZES[args.size].tokens, args.seed, args.stop_after)


def build(out: Path, name: str, tokens: int, seed: int, stop_after: int | None = None) -> None:
    """Train a base into a checkpoint folder. A stopped build resumes from `out/state.pt`."""
    out.mkdir(parents=True, exist_ok=True)
    size, steps, world, state = SIZES[name], tokens // BATCH_TOKENS, own_world(), out / "state.pt"
    tokenizer = train_tokenizer(texts(world, seed, -1), VOCABULARY, CONTEXT)
    torch.manual_seed(seed)
    model = new_model(size, tokenizer).to("cuda" if torch.cuda.is_available() else "cpu")
    optimizers = _optimizers(model)
    start_step, early_digest = _restore(state, model, optimizers, tokenizer)
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    print(
        f"{parameters:.2f} M parameters; {steps} steps of {BATCH_TOKENS} tokens, starting at step {start_step}",
        flush=True,
    )
    loss, remaining = 0.0, islice(batches(tokenizer, world, seed, skip=start_step), steps - start_step)
    progress = tqdm(remaining, initial=start_step, total=steps, unit=" tokens", unit_scale=BATCH_TOKENS, mininterval=5)
    for step, batch in enumerate(progress, start_step + 1):
        loss_now = _update(model, optimizers, batch, (step - 1) / steps)
        loss = 0.95 * loss + 0.05 * loss_now if loss else loss_now
        progress.set_postfix(loss=f"{loss:.4f}", refresh=False)
        if step == steps // TWENTIETH:
            early_digest = digest(model)
            print(f"weights after a twentieth of the steps: {early_digest}", flush=True)
        if step % SAVE_EVERY == 0 or step in (steps, stop_after):
            _save(state, model, optimizers, tokenizer, step, early_digest)
        if step == stop_after:
            return
    _ship(out, model, tokenizer)
    settings = {"size": name, "tokens": tokens, "seed": seed, "loss": loss, "context": CONTEXT}
    _write_card(out, parameters=parameters, beginning=early_digest, machine=machine(), **settings)


def digest(model: Any) -> str:
    """Return a digest of all weights."""
    result = hashlib.sha256()
    for parameter in model.parameters():
        result.update(parameter.detach().cpu().numpy().tobytes())
    return result.hexdigest()[:16]


def machine() -> str:
    """Describe the hardware: vector units and threads set the order of sums, and so the last bits of the weights."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    units = torch.backends.cpu.get_cpu_capability() + (" with bfloat16" if has_bfloat16() else " in float32")
    return f"{units}, {torch.get_num_threads()} threads"


def new_model(size: Size, tokenizer: Any) -> Any:
    stop, end = tokenizer.convert_tokens_to_ids([STOP, END])
    ends = {"eos_token_id": stop, "pad_token_id": end, "bos_token_id": None}
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        head_dim=size.head_width,
        intermediate_size=size.inner,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        **ends,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=512, **ends | {"eos_token_id": [stop, end]}
    )
    return model


def _optimizers(model: Any) -> list[torch.optim.Optimizer]:
    """Use Muon for the matrices, whose loss is far lower than AdamW's at equal tokens, and AdamW for the rest."""
    inner = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(inner, lr=2e-2, weight_decay=0.01),
        torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _update(model: Any, optimizers: list[torch.optim.Optimizer], batch: Batch, progress: float) -> float:
    inputs, labels = (part.to(model.device) for part in batch)
    scale = min(progress / WARM_UP + WARM_UP, (1 - progress) / (1 - WARM_UP), 1.0)  # linear warm-up, then linear decay
    with torch.autocast(model.device.type, torch.bfloat16, enabled=has_bfloat16(model.device.type)):
        loss = model(input_ids=inputs, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("peak", group["lr"]) * scale
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


def _save(
    path: Path, model: Any, optimizers: list[torch.optim.Optimizer], tokenizer: Any, step: int, early_digest: str
) -> None:
    state = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "step": step}
    state["beginning"] = early_digest
    state["tokens"] = tokenizer.backend_tokenizer.to_str()
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def _restore(path: Path, model: Any, optimizers: list[torch.optim.Optimizer], tokenizer: Any) -> tuple[int, str]:
    if not path.exists():
        return 0, ""
    state = torch.load(path, map_location=model.device, weights_only=True)
    if state["tokens"] != tokenizer.backend_tokenizer.to_str():
        raise RecoverError(f"The lab's text has changed since {path} was saved. Start again in another folder.")
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return int(state["step"]), str(state["beginning"])


def _ship(out: Path, model: Any, tokenizer: Any) -> None:
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    metadata = {"format": 1, "kind": "full", "parent": None, "suites": SUITES}
    (out / "recover.json").write_text(json.dumps(metadata) + "\n", encoding="utf-8")


def _write_card(out: Path, **facts: object) -> None:
    card = Path(__file__).with_name("model_card.md").read_text(encoding="utf-8")
    weights = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    (out / "README.md").write_text(card.format(digest=weights, **facts), encoding="utf-8")


if __name__ == "__main__":
    main()
