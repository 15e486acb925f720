"""A deliberately naive scheduler to compare with: per pod, per node, plain Python on the JSON of the objects.

Written from the specification, not from the plugins; it shares no code with koordsched, not even the
parsing of quantities. `evaluate` in `evaluation.py` answers for one pod and one cluster state; each plugin
is one small module under `plugins/`. Speed does not matter here, only that it can be read against the text.
"""
