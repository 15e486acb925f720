"""HTTP extenders: web services that take part in scheduling (core spec 3.9; upstream `pkg/scheduler/extender.go`).

`client` calls one extender, with the messages of `wire`; `extenders` holds all extenders of a configuration and the
pods they are interested in; `cycle` is the scheduling cycle that calls them. For pods that no extender is interested
in, the ordinary synchronous cycle runs.
"""
