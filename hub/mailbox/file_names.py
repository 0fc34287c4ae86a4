"""Encoder of identities into file names: two identities never share a file, on any disk."""

from pathlib import Path

from hub.protocol import names


def file_stem(identity: str) -> str:
    """The file name, without its ending, of an identity's mailbox.

    Some disks take `Bob` and `bob` for one file, so a capital letter is written as `+` and the small letter (`+bob`);
    an identity has no `+` of its own, so the way back is unique.

    Raises:
        BadName: no identity; nothing else may become a file name.
    """
    encoded = "".join(f"+{letter.lower()}" if letter.isupper() else letter for letter in names.identity(identity))
    return f"mailbox-{encoded}"


def database_file(folder: Path, identity: str) -> Path:
    """Where an identity's mailbox is."""
    return folder / f"{file_stem(identity)}.db"


def lock_file(folder: Path, identity: str) -> Path:
    """Where an identity's lock is. It stays when the mailbox closes: were it deleted, two processes could lock two."""
    return folder / f"{file_stem(identity)}.lock"
