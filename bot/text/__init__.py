"""Everything people read in the chat: jobs, the box, groups, warnings, buttons, log excerpts."""
