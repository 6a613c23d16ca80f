from typing import Any

from recovery.telemetry import StepRecord


def step_record(step: int, **values: Any) -> StepRecord:
    fields: dict[str, Any] = dict.fromkeys(StepRecord.__dataclass_fields__, 0.0)
    return StepRecord(
        **fields
        | {"step": step, "rollout_seconds": 0.5, "update_seconds": 0.5, "flops": 10.0, "target_tokens": 7}
        | values
    )
