"""Handlers that come with the runtime; they are found like anybody's, by entry point."""
