"""Training: what a system learns from real conversations and trajectories. Needs the extra `train`."""
