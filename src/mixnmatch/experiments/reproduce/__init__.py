"""The paper's tables and figures from files of logits and labels."""
