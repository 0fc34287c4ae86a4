"""`python -m hub …`: every command of the hub."""

from hub.cli.main import app

if __name__ == "__main__":
    app(prog_name="python -m hub")
