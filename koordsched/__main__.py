"""`python -m koordsched` is the `koordsched` command."""

from koordsched.cli import main

if __name__ == "__main__":
    main()
