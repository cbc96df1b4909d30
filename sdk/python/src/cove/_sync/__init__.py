"""The synchronous client. Except for `_io`, these files are generated from `cove._async` by `tools/generate_sync.py`."""
