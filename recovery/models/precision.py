"""Detects hardware bfloat16: most CPUs only emulate it, at several times the cost of float32."""

import torch


def has_bfloat16(device: str | None = None) -> bool:
    """Return whether the device (default: the GPU if there is one) multiplies in bfloat16 natively."""
    kind = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Only x86 units count: what mkldnn reports as supported may be emulated, two to four times slower.
    return kind == "cpu" and any(torch.cpu.get_capabilities().get(unit) for unit in ("amx_bf16", "avx512_bf16"))
