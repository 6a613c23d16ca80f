"""Whether bfloat16 is worth computing in here: most processors only imitate it, at several times float32's cost."""

import torch


def has_bfloat16(device: str | None = None) -> bool:
    """Units of its own for products in bfloat16; the graphics card's if there is one and none is named."""
    kind = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # torch tells no other way: what mkldnn calls supported may be an imitation, 4 × slower than float32 where measured.
    units = (getattr(torch.cpu, f"_is_{unit}_supported", None) for unit in ("amx_tile", "avx512_bf16"))
    return kind == "cpu" and any(unit() for unit in units if unit)
