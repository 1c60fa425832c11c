"""Train the models of two systems: of graph_convqa on conversations, and of hseq on sequences of actions.
Needs the extra `train`."""
