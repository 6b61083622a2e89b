"""``python -m mixnmatch``: the command line."""

from mixnmatch.cli import main

if __name__ == "__main__":
    main()
