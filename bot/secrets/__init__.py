"""What must not leave the box: the token, and whatever looks like a secret in what is told."""
