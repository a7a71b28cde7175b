"""The user's side of the border: asks actors, owns no state of the broker."""
