"""Train models: the loop, LoRA, and the training on finished runs. What a system trains is in its folder. Needs
the extra `train`."""
