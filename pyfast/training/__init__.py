"""Train the models of two systems: on conversations (graph_convqa), or on sequences of actions (hseq). Needs
the extra `train`."""
