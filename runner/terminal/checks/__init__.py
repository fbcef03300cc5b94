"""The checks of `nightshift doctor`, one file for each part of the box."""
