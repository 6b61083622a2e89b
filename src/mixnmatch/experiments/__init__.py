"""The paper's experiments: the synthetic study, networks and their training."""
