"""The actor shell: the only place with pykka and threads."""
