"""Train the base from scratch: `python -m recovery.lab.build --out DIR`. Stopped, it goes on where it was."""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from recovery.lab.curriculum import BATCH_TOKENS, batches, texts
from recovery.lab.tokens import END, STOP, train_tokenizer
from recovery.lab.world import own_world

CONTEXT = 4096


@dataclass(frozen=True)
class Size:
    hidden: int
    layers: int
    heads: int
    key_heads: int
    head_width: int
    inner: int
    vocabulary: int
    tokens: int  # to train on


SIZES = {
    "small": Size(256, 4, 8, 4, 32, 768, 2048, 30_000_000),
    "large": Size(384, 8, 8, 4, 48, 1152, 2048, 120_000_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--size", choices=SIZES, default="small", help="how large a model (default: small)")
    parser.add_argument("--tokens", type=int, help="how much to train on (default: what the size needs)")
    parser.add_argument("--stop-after", type=int, help="stop after so many steps, as if interrupted")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--muon", type=float, default=2e-2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--threads", type=int, default=2, help="results are the same to the bit only for the same number"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    build(options)


def build(options: argparse.Namespace) -> None:
    size = SIZES[options.size]
    steps = (options.tokens or size.tokens) // BATCH_TOKENS
    world = own_world()
    tokenizer = train_tokenizer(texts(world, options.seed, -1), size.vocabulary, CONTEXT)
    torch.manual_seed(options.seed)
    model = new_model(size, tokenizer)
    print(
        f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {steps} steps of {BATCH_TOKENS} tokens",
        flush=True,
    )
    optimizers = _optimizers(model, options)
    options.out.mkdir(parents=True, exist_ok=True)
    saved = options.out / "build.pt"
    done = _restore(saved, model, optimizers)
    began, at = time.time(), done
    stream = batches(tokenizer, world, options.seed, skip=done)
    average = 0.0
    for step in range(done, steps):
        if step == options.stop_after:
            break
        inputs, labels = next(stream)
        _set_rates(optimizers, step / steps)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=inputs, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        average = loss.item() if not average else 0.95 * average + 0.05 * loss.item()
        if (step + 1) % 20 == 0 or step + 1 == steps:
            speed = (step + 1 - at) * BATCH_TOKENS / (time.time() - began)
            left = (steps - step - 1) * BATCH_TOKENS / speed
            print(
                f"step {step + 1}/{steps}  loss {average:.4f}  {speed:,.0f} tokens/s  {left / 60:.1f} min left",
                flush=True,
            )
        if (step + 1) % 200 == 0 or step + 1 == options.stop_after:
            _checkpoint(saved, model, optimizers, step + 1)
    _ship(model, tokenizer, options.out)


def new_model(size: Size, tokenizer: Any) -> Any:
    stop, end = tokenizer.convert_tokens_to_ids([STOP, END])
    config = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_heads,
        head_dim=size.head_width,
        intermediate_size=size.inner,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=stop,
        pad_token_id=end,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        max_new_tokens=512,
        eos_token_id=[stop, end],
        pad_token_id=end,
        bos_token_id=None,
    )
    return model


def _optimizers(model: Any, options: Any) -> list[torch.optim.Optimizer]:
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    if options.optimizer == "adamw":
        return [torch.optim.AdamW(list(model.parameters()), lr=options.rate, betas=(0.9, 0.95), weight_decay=0.05)]
    return [
        torch.optim.Muon(matrices, lr=options.muon, weight_decay=0.01, momentum=0.95, ns_steps=5),
        torch.optim.AdamW(others, lr=options.rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _set_rates(optimizers: list[torch.optim.Optimizer], progress: float) -> None:
    """Up for the first fiftieth, then down in a straight line."""
    scale = min(progress / 0.02 + 0.02, (1 - progress) / 0.98, 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("peak", group["lr"])
            group["lr"] = group["peak"] * scale


def _checkpoint(path: Path, model: Any, optimizers: list[torch.optim.Optimizer], step: int) -> None:
    state = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "step": step}
    torch.save(state, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)


def _restore(path: Path, model: Any, optimizers: list[torch.optim.Optimizer]) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return int(state["step"])


def _ship(model: Any, tokenizer: Any, out: Path) -> None:
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    suites = {"behaviour": "lab", "knowledge": "lab", "retention": "lab"}
    (out / "recover.json").write_text(
        json.dumps({"format": 1, "kind": "full", "parent": None, "suites": suites}) + "\n"
    )


if __name__ == "__main__":
    main()
