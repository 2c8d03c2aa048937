"""`python -m unbubble` is the command line."""

from unbubble.cli import main

if __name__ == "__main__":
    main()
