"""Parses, checks, compares and changes the commands of jobs, and builds what is executed. Cheap to import."""
