"""HTTP extenders: web services that have a say in scheduling (core spec 3.9; upstream `pkg/scheduler/extender.go`).

`client` speaks to one of them, in the words of `wire`; `extenders` knows all of a configuration and whom they care
about; `cycle` is the scheduling cycle that asks them. The cycle stays plain and synchronous for pods that no extender
is interested in.
"""
