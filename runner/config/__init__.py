"""State folder, settings, env files, job options, workspaces, the environment of jobs."""
