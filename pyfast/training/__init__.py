"""Train the models of systems, on conversations or on trajectories. Needs the extra `train`."""
