"""A trial beside another scheduler: at each of its decisions our plugins are asked, and nothing is written.

`judgement` compares one decision with what our profile would have decided on the state just before; `shadow` notices
the decisions in the watch of pods; `waiting` finds the pods that wait although our profile has a node for them; `tally`
counts, and `metrics` shows the counts to Prometheus.
"""
