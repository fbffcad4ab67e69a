"""`python -m seriatim` is `seriatim`."""

from seriatim.cli.main import main

if __name__ == "__main__":
    main()
