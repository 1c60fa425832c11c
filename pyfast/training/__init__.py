"""Train models: the training loop, LoRA, and training on examples from finished runs. The training code of a
single system is in that system's folder. Requires the extra `train`."""
