"""``python -m mixnmatch.cli``."""

from mixnmatch.cli.app import main

if __name__ == "__main__":
    main()
