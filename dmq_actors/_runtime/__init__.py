"""How actors run at all, of any domain: the only place with pykka and threads."""
