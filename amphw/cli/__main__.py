"""`python -m amphw.cli`: the same program where the `amphw` script is not on the path."""

from amphw.cli.main import app

if __name__ == "__main__":
    app(prog_name="amphw")
