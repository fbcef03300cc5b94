"""Who starts when and where: the choice, what is counted over the box, what can never be had. Pure."""
