"""`python -m unbubble`, and the script `unbubble`, are the command line."""

import sys


def main() -> None:
    """Run the command line; an interrupt while it is loaded is one, too."""
    try:
        from unbubble.cli import main as run
    except KeyboardInterrupt:
        print("unbubble: interrupted", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
