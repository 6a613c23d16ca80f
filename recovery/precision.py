"""Whether bfloat16 is worth computing in here: most processors only imitate it, at several times float32's cost."""

import torch


def has_bfloat16(device: str | None = None) -> bool:
    """Units of its own for products in bfloat16; the graphics card's if there is one and none is named."""
    kind = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Of x86, and torch tells no other way: what mkldnn calls supported may be imitated, two to four times as slow.
    units = (getattr(torch.cpu, f"_is_{unit}_supported", None) for unit in ("amx_tile", "avx512_bf16"))
    return kind == "cpu" and any(unit() for unit in units if unit)
