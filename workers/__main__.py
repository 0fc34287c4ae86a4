"""`python -m workers …`: runs a worker, or lists the handlers that are installed."""

from workers.cli import app

if __name__ == "__main__":
    app(prog_name="python -m workers")
