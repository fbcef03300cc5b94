"""What `nightshift doctor` looks at, one file for each part of the box."""
