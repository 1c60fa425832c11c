"""Training of systems on real conversations and trajectories. Needs the extra `train`."""
