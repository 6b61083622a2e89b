"""The networks of the paper: reading images, training, and the logits of held-out images. Needs the extra `train`."""
