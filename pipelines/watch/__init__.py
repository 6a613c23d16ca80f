"""See forgetting while another trainer trains: `trainer.add_callback(ForgettingCallback(trainer))`."""

from pipelines.watch.callback import ForgettingCallback

__all__ = ["ForgettingCallback"]
