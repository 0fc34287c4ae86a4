"""Everything a hub is: contract, delivery, router, storage, client and commands.

Packages import one way (see CONTRIBUTING.md): protocol, then service, then delivery and storage, then the client,
then the router, then the processes that compose them, then the commands.
"""
