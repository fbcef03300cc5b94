"""The strict Bot API over HTTP, for tests: a server, a control channel, a clock that can be put forward."""
