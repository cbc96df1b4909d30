"""The asynchronous client: the source of truth. `tools/generate_sync.py` makes `cove._sync` from these files, except `_io`."""
