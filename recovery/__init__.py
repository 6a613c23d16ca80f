"""The learning core: training data, losses, teachers, rollout engines and the training loop."""
