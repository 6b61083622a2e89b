"""The peers beside us: one suite for speed, memory and quality. ``make bench`` runs it; see ``__main__``."""
