"""A job's command as it was given: read, checked, changed, and made into what is executed. Light."""
