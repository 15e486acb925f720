"""Mutation testing: small defects, one at a time, in what decides and accounts, and whether tests find them.

`python -m tests.mutants --slice 1/20` continues the survey of docs/reliability.md, "Mutants".

* `changes`: the mutants of a module, from its syntax tree.
* `live`: puts the code of a mutant, or of probes, into the functions that are loaded.
* `session`: a pytest that has collected its tests, and runs some of them in a forked process.
* `reach`: which tests reach which statements, recorded once.
* `hunt`: which tests are asked about a mutant, and in which order.
* `results`: what was found, kept in this folder, and what is said of it.
"""
