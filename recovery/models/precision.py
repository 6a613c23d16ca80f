"""Whether bfloat16 is worth computing in here: most processors only imitate it, at several times float32's cost."""

import torch


def has_bfloat16(device: str | None = None) -> bool:
    """Units of its own for products in bfloat16; the graphics card's if there is one and none is named."""
    kind = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # By the units of x86 alone: what mkldnn calls supported may be imitated, two to four times as slow.
    return kind == "cpu" and any(torch.cpu.get_capabilities().get(unit) for unit in ("amx_bf16", "avx512_bf16"))
